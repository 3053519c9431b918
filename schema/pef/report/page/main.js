// What is shown stands in the address behind the #, so that every view is a link and "back" goes back.

const TABS = {
  overview: ["Overview", overviewTab], graph: ["Graph", graphTab], memory: ["Memory", memoryTab], roofline: ["Roofline", rooflineTab],
  sections: ["Sections", sectionsTab], symbols: ["Symbols", symbolsTab], compare: ["Comparison", compareTab], everything: ["Everything", everythingTab],
};
const START = {
  tab: "overview", which: 0, scope: 0, section: null, symbol: null, query: "", type: "", limit: "", kind: "", home: "", region: "", part: "whole", paint: "time",
};
// What the page need not be drawn again for.
const MARKED = ["section", "symbol"];

const data = JSON.parse(document.getElementById("data").textContent);
const models = [data.report, ...(data.against ? [data.against] : [])].map(modelOf);
for (const model of models) model.named = new Map(model.sections.map((section) => [section.name, section]));
if (models.length > 1 && models[0].name === models[1].name) models.forEach((model, at) => { model.name += at ? " (B)" : " (A)"; });

let state = { ...START }, shown = null, drawnState = null;

function read() {
  const said = new URLSearchParams(location.hash.slice(1)), next = { ...START };
  for (const name of Object.keys(START)) {
    if (!said.has(name)) continue;
    const value = said.get(name);
    next[name] = START[name] === null || typeof START[name] === "number" ? Number(value) : value;
  }
  return sound(next);
}

/** Put in order what an address by hand might say. */
function sound(next) {
  const within = (number, count) => Number.isInteger(number) && number >= 0 && number < count;
  if (!within(next.which, models.length)) next.which = 0;
  const model = models[next.which];
  if (!Object.hasOwn(TABS, next.tab) || (next.tab === "compare" && models.length < 2)) next.tab = START.tab;
  if (!within(next.scope, model.scopes.length)) next.scope = 0;
  if (!within(next.section, model.sections.length)) next.section = null;
  if (!within(next.symbol, model.symbols.length)) next.symbol = null;
  if (!Object.hasOwn(PAINTS, next.paint) || (next.paint === "other" && models.length < 2)) next.paint = START.paint;
  return next;
}

function address(next) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(next)) if (value !== START[name]) words.set(name, value);
  return `#${words}`;
}

function go(changes, { replace = false } = {}) {
  const next = sound({ ...state, ...changes });
  const where = address(next);
  if (where === address(state) && shown) return;
  if (replace) history.replaceState(null, "", where); else history.pushState(null, "", where);
  apply(next);
}

function pageOf(now) {
  return { state: now, model: models[now.which], other: models.length > 1 ? models[1 - now.which] : null, go };
}

function apply(next) {
  const same = drawnState !== null && Object.keys(START).every((name) => MARKED.includes(name) || drawnState[name] === next[name]);
  // Those who hold the page of before look at this object.
  state = shown && same ? Object.assign(state, next) : next;
  const page = pageOf(state);
  hideTip();
  if (same) {
    shown.mark?.();
  } else {
    drawnState = { ...state };
    drawTop(page);
    shown = TABS[state.tab][1](page);
    const view = document.getElementById("view");
    view.className = shown.full ? "full" : "";
    replaceChildren(view, shown.element);
    shown.mark?.();
  }
  drawDetails(page);
}

function drawDetails(page) {
  const box = document.getElementById("details"), found = detailsOf(page);
  box.hidden = found === null;
  if (found === null) return;
  replaceChildren(box, el("button", { class: "close", "aria-label": "close", onclick: () => go({ section: null, symbol: null }) }, "×"), found);
  box.scrollTop = 0;
}

/** The head is kept where it is typed in, and what it shows is brought up to date. */
function drawTop(page) {
  const { model } = page, top = document.getElementById("top");
  const field = document.activeElement?.id === "query" ? document.activeElement : null;
  const search = field ?? el("input", { id: "query", type: "search", placeholder: "search names, types, operators", "aria-label": "search", size: 32, oninput: (event) => go({ query: event.target.value }, { replace: true }) });
  if (search.value !== state.query) search.value = state.query;
  const choices = (key) => [...new Set(model.sections.map((section) => section[key]).filter(Boolean))].sort().map((name) => [name, name]);
  const parts = [
    el("h1", { title: model.name }, model.name),
    models.length > 1 ? select(models.map((each, at) => [String(at), `show ${each.name}`]), String(state.which), (value) => go({ which: Number(value), section: null, symbol: null, scope: 0, region: "" })) : null,
    el("span", { class: "grow" }), search,
    select([["", "all types"], ...choices("type")], state.type, (value) => go({ type: value })),
    select([["", "all limits"], ...choices("limited_by")], state.limit, (value) => go({ limit: value })),
    el("button", { onclick: otherTheme, title: "light or dark" }, "◐"),
    el("nav", { "aria-label": "views" }, Object.entries(TABS).filter(([name]) => name !== "compare" || models.length > 1)
      .map(([name, [title]]) => el("button", { "aria-current": name === state.tab ? "page" : "false", "data-tab": name, onclick: () => go({ tab: name }) }, title))),
  ].filter(Boolean);
  if (!field) { replaceChildren(top, parts); return; }
  for (const child of [...top.children]) if (child !== field) child.remove();
  parts.slice(0, parts.indexOf(field)).forEach((part) => top.insertBefore(part, field));
  top.append(...parts.slice(parts.indexOf(field) + 1));
}

const dark = matchMedia("(prefers-color-scheme: dark)");

function theme(name) {
  document.documentElement.dataset.theme = name;
  if (shown) shown.mark?.();
}

function otherTheme() {
  theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
}

theme(dark.matches ? "dark" : "light");
dark.addEventListener("change", () => theme(dark.matches ? "dark" : "light"));
window.addEventListener("popstate", () => apply(read()));
window.addEventListener("keydown", (event) => {
  if (event.key === "Escape") go({ section: null, symbol: null });
  if (event.key === "/" && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement?.tagName ?? "")) {
    event.preventDefault();
    document.getElementById("query").focus();
  }
});
apply(read());
