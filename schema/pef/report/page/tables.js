// Tables that are sorted by a click on a header and filled further while they are scrolled.

const CHUNK = 150;
const orders = new Map();

/**
 * A table of `rows`. A column is {name, title, value(row), text(value, row), right}; `choose(row)` is called for a
 * row that is clicked, `chosen(row)` tells whether one is.
 */
function tableOf(key, columns, rows, { choose = null, chosen = () => false } = {}) {
  const body = el("tbody"), heads = columns.map(header);
  const box = el("div", { class: "table", tabindex: 0, onscroll: () => { if (box.scrollTop + box.clientHeight > box.scrollHeight - 400) fill(); } },
    el("table", {}, el("thead", {}, el("tr", {}, heads)), body));
  let ordered = rows, shown = 0, drawn = [];

  function header(column, at) {
    return el("th", { class: column.right ? "right" : null, title: column.title, scope: "col", onclick: () => sort(at) }, column.name);
  }
  function sort(at) {
    const now = orders.get(key);
    orders.set(key, now && now.at === at ? { at, down: !now.down } : { at, down: Boolean(columns[at].right) });
    draw();
  }
  function draw() {
    const order = orders.get(key);
    heads.forEach((head, at) => head.setAttribute("aria-sort", order?.at === at ? (order.down ? "descending" : "ascending") : "none"));
    heads.forEach((head, at) => { head.textContent = visible(columns[at].name) + (order?.at === at ? (order.down ? " ▾" : " ▴") : ""); });
    ordered = order && columns[order.at] ? [...rows].sort((a, b) => compared(columns[order.at].value(a), columns[order.at].value(b)) * (order.down ? -1 : 1)) : rows;
    shown = 0;
    drawn = [];
    body.replaceChildren();
    fill();
  }
  function fill() {
    for (const row of ordered.slice(shown, shown + CHUNK)) {
      const line = el("tr", { class: choose ? "row" : null, onclick: choose ? () => choose(row) : null }, columns.map((column) => cell(column, row)));
      drawn.push([line, row]);
      body.append(line);
    }
    shown = Math.min(shown + CHUNK, ordered.length);
    mark();
  }
  function mark() {
    for (const [line, row] of drawn) line.classList.toggle("chosen", chosen(row));
  }
  draw();
  return { element: rows.length ? box : el("p", { class: "faint" }, "none"), mark };
}

function cell(column, row) {
  const value = column.value(row), shown = column.text ? column.text(value, row) : value;
  return el("td", { class: column.right ? "right" : null }, shown === null || shown === undefined || shown === "" ? "-" : shown instanceof Node ? shown : String(shown));
}

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}

const column = (name, key, extra = {}) => ({ name, value: typeof key === "function" ? key : (row) => row[key], ...extra });
const right = (name, key, text, title) => column(name, key, { right: true, text, title });

function usage(model, key) {
  const all = numberOf(model, key);
  return (count) => all ? `${exact(count)} · ${percent(count / all)}` : exact(count);
}

const FIXED = "weights and constants that the file holds and no run changes; all others are in and out";

function sectionColumns(model) {
  return [
    right("id", "id"), column("name", "name"), column("type", "type"),
    right("time", (row) => row.latency_us, timeText, "modelled"), right("calls", (row) => model.calls[row.id].length, exact),
    column("limited by", "limited_by", { title: "the largest term of the modelled time" }),
    ...TERMS.map((term) => right(term, (row) => row.terms?.[term] ?? null, (us) => us === null ? "-" : timeText(us), `modelled: ${MEANING[term]}`)),
    right("PCUs", "pcus", usage(model, "pcus"), "modelled: compute units"), right("PMUs", "pmus", usage(model, "pmus"), "modelled: memory units"),
    right("SRAM", "sram", bytesText, "modelled"), right("FLOP", "flops", (flops) => countText(flops).trim()),
    right("in", "bytes_in", bytesText), right("fixed weights", "bytes_weights", bytesText, FIXED), right("out", "bytes_out", bytesText),
    right("ops", "operators", exact), right("groups", (row) => row.groups.length, exact),
  ];
}

function sectionsTab(page) {
  const { model, state } = page;
  const rows = model.sections.filter((section) => fits(model, section, state));
  const table = tableOf("sections", sectionColumns(model), rows, { choose: (row) => page.go({ section: row.id, symbol: null }), chosen: (row) => row.id === state.section });
  return {
    full: true, mark: table.mark,
    element: [el("div", { class: "tools" }, el("span", {}, `${exact(rows.length)} of ${plural(model.sections.length, "section")}`), modelled(), el("span", { class: "faint" }, "click a header to sort, a row for how its numbers came about")), table.element],
  };
}

function symbolsTab(page) {
  const { model, state } = page, end = model.schedule.length;
  const words = queryWords(state.query), choices = (key) => [["", "all"], ...[...new Set(model.symbols.map((row) => row[key] ?? "none"))].sort().map((name) => [name, name])];
  const rows = model.symbols.filter((row) => (!state.kind || row.kind === state.kind) && (!state.home || (row.region ?? "none") === state.home)
    && words.every((word) => [`#${row.id}`, row.name, row.kind, row.dtype, ...row.origins].some((text) => text.toLowerCase().includes(word))));
  const table = tableOf("symbols", [
    right("id", "id"), column("name", "name"), column("kind", "kind"), column("lasts", (row) => row.duration.toLowerCase()), column("dtype", dtypeText),
    column("shape", (row) => shapeText(row.shape).replaceAll(" ", "\u00a0")), right("size", "bytes", (_, row) => sizeText(row)), column("region", "region"),
    right("address", "address", (address) => address === null ? "-" : hex(address)), right("from call", (row) => row.first_call, (call) => call < 0 ? "start" : exact(call)),
    right("to call", "last_call", (call) => call >= end ? "end" : exact(call)), right("writers", (row) => model.writers[row.id].length, exact, "how many sections write it"), right("readers", (row) => model.readers[row.id].length, exact, "how many sections read it"),
  ], rows, { choose: (row) => page.go({ symbol: row.id, section: null }), chosen: (row) => row.id === state.symbol });
  return {
    full: true, mark: table.mark,
    element: [el("div", { class: "tools" }, el("span", {}, `${exact(rows.length)} of ${plural(model.symbols.length, "symbol")}`),
      el("label", {}, "kind ", select(choices("kind"), state.kind, (value) => page.go({ kind: value }))),
      el("label", {}, "region ", select(choices("region"), state.home, (value) => page.go({ home: value })))), table.element],
  };
}

/** Every part of the report as it is, those too that nothing above shows. */
function everythingTab(page) {
  const { report } = page.model;
  return {
    element: Object.entries(report).map(([part, value]) => el("details", { ontoggle: (event) => { if (event.target.open && event.target.childElementCount === 1) event.target.append(plain(`all ${part}`, value)); }, class: "short" },
      el("summary", {}, `${part}${Array.isArray(value) ? ` (${exact(value.length)})` : ""}`))),
  };
}

function plain(key, value) {
  if (Array.isArray(value) && value.length && typeof value[0] === "object" && value[0] !== null) {
    const names = [...new Set(value.flatMap((row) => Object.keys(row)))];
    return tableOf(key, names.map((name) => column(name, name, { right: typeof value[0][name] === "number", text: (cellValue) => typeof cellValue === "number" ? stated(cellValue) : typeof cellValue === "object" && cellValue !== null ? shortened(JSON.stringify(cellValue), 400) : cellValue })), value).element;
  }
  return el("pre", { class: "how" }, JSON.stringify(value, null, 1));
}
