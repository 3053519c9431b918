// The graph of sections: a lane for each type, in each lane from left to right and from line to line.

const NODE = { width: 164, height: 46, right: 26, below: 18, stack: 6, head: 34 };
const CROWDED = 120;
const TITLE = 0.45; // the height of a lane's title, as a part of its head
const LETTER = 0.62; // the width of a bold letter, for its height

/** The room that a picture has on this screen, about. */
const screenOf = () => ({ width: Math.max(innerWidth - 30, 300), height: Math.max(innerHeight - 150, 300) });

const PAINTS = {
  time: "modelled time", limit: "what limits it", pcus: "compute units", pmus: "memory units", type: "type", other: "change to the other file",
};

/** Where each section stands: {places: [{x, y}], lanes: [{y, height, head, text}], width, height}. */
function layoutOf(model) {
  const lanes = lanesOf(model).map((ids) => ({ text: laneText(model, ids), columns: columnsOf(model, ids) })), screen = screenOf();
  const widest = Math.max(1, ...lanes.map((lane) => lane.columns.length));
  const tried = [...new Array(Math.min(widest, 60)).keys()].map((less) => sized(lanes, less + 1, screen));
  // As few rows as can be read; else what is largest where all of it is shown on a screen.
  const best = tried.findLast((each) => each.scale >= 1) ?? tried.reduce((found, each) => each.scale > found.scale + 1e-9 ? each : found);
  // Titles stay readable where everything is small.
  return placed(lanes, best.across, Math.max(NODE.head, 24 / best.scale));
}

/** The rows of a lane: so many columns each. */
function rowsOf({ columns }, across) {
  const rows = [];
  for (let first = 0; first < columns.length; first += across) rows.push(columns.slice(first, first + across));
  return rows;
}

const tallest = (row) => Math.max(...row.map((column) => column.length));

function sized(lanes, across, screen) {
  const { width, height } = placed(lanes, across, NODE.head);
  return { across, scale: Math.min(screen.width / width, screen.height / height) };
}

function placed(lanes, across, head) {
  const stepX = NODE.width + NODE.right, stepY = NODE.height + NODE.below;
  const places = [], boxes = [];
  let y = 0, width = 0;
  for (const lane of lanes) {
    const top = y;
    y += head;
    for (const row of rowsOf(lane, across)) {
      const high = tallest(row);
      row.forEach((column, at) => column.forEach((id, down) => {
        places[id] = { x: 12 + at * stepX, y: y + (down + (high - column.length) / 2) * stepY };
      }));
      width = Math.max(width, row.length * stepX);
      y += high * stepY;
    }
    boxes.push({ y: top, height: y - top, head, text: lane.text });
    width = Math.max(width, 24 + lane.text.length * LETTER * TITLE * head);
    y += 16;
  }
  return { places, lanes: boxes, width, height: y };
}

/** Sections of one graph and type, in the order of their first calls; those that nothing calls come last. */
function lanesOf(model) {
  const lanes = new Map();
  for (const section of [...model.schedule, ...model.sections.map((each) => each.id)]) {
    const call = model.calls[section][0] ?? -1;
    const graph = model.report.graphs.findIndex((each) => call >= each.first_call && call < each.first_call + each.calls);
    const key = `${graph} ${model.sections[section].type}`;
    if (!lanes.has(key)) lanes.set(key, new Set());
    lanes.get(key).add(section);
  }
  const placed = new Set();
  return [...lanes.values()].map((ids) => [...ids].filter((id) => !placed.has(id) && placed.add(id))).filter((ids) => ids.length);
}

function laneText(model, ids) {
  const first = model.sections[ids[0]], call = model.calls[first.id][0] ?? -1;
  const graph = model.report.graphs.find((each) => call >= each.first_call && call < each.first_call + each.calls);
  const time = sum(ids.map((id) => model.sections[id].latency_us * model.calls[id].length));
  return `${first.type}${graph && model.report.graphs.length > 1 ? ` of ${shortened(graph.name, 40)}` : ""}: ${plural(ids.length, "section")}, ${timeText(time)} modelled`;
}

/** Columns of sections: each section is right of all in its lane that it reads of. */
function columnsOf(model, ids) {
  const inside = new Set(ids), rank = new Map();
  for (const id of ids) {
    const before = [...model.before[id].keys()].filter((other) => inside.has(other) && rank.has(other));
    rank.set(id, before.length ? 1 + Math.max(...before.map((other) => rank.get(other))) : 0);
  }
  const ranks = [];
  for (const id of ids) (ranks[rank.get(id)] ??= []).push(id);
  const columns = [];
  for (const members of ranks.filter(Boolean)) {
    for (let first = 0; first < members.length; first += NODE.stack) columns.push(members.slice(first, first + NODE.stack));
  }
  return columns;
}

/** The colour of a section, and that of the text on it. */
function painter(model, paint, other) {
  const slowest = Math.max(...model.sections.map((section) => section.latency_us), 1e-9);
  const most = { pcus: numberOf(model, "pcus"), pmus: numberOf(model, "pmus") };
  const heat = (share) => `color-mix(in oklab, var(--hot) ${(100 * Math.min(share, 1)).toFixed(1)}%, var(--cold))`;
  const types = [...new Set(model.sections.map((section) => section.type))];
  const ways = {
    time: (section) => heat(Math.sqrt(section.latency_us / slowest)),
    limit: (section) => limitPaint(section.limited_by),
    pcus: (section) => heat(section.pcus / (most.pcus ?? Math.max(...model.sections.map((each) => each.pcus), 1))),
    pmus: (section) => heat(section.pmus / (most.pmus ?? Math.max(...model.sections.map((each) => each.pmus), 1))),
    type: (section) => soft(TERMS[types.indexOf(section.type) % TERMS.length]),
    other: (section) => changePaint(section, other?.named.get(section.name)),
  };
  return ways[paint] ?? ways.time;
}

const LIMITS = { memory: "streams", compute: "compute", launch: "launch", fill: "fill", link: "link" };
const soft = (name) => `color-mix(in oklab, ${colour(name)} 42%, var(--cold))`;
const strongPaint = (limit) => Object.hasOwn(LIMITS, limit) ? colour(LIMITS[limit]) : "var(--faint)";
const limitPaint = (limit) => Object.hasOwn(LIMITS, limit) ? soft(LIMITS[limit]) : "var(--cold)";

function changePaint(section, other) {
  if (other === undefined) return "var(--alone)";
  const ratio = other.latency_us ? section.latency_us / other.latency_us : 1;
  const share = Math.min(Math.abs(Math.log2(Math.max(ratio, 1e-6))), 1);
  return `color-mix(in oklab, var(--${ratio > 1 ? "worse" : "better"}) ${(100 * share).toFixed(0)}%, var(--cold))`;
}

function paintLegend(paint) {
  const ends = { time: ["quick", "the slowest"], pcus: ["none", "all of the chip"], pmus: ["none", "all of the chip"] };
  if (paint in ends) return legend([[ends[paint][0], "var(--cold)"], [ends[paint][1], "var(--hot)"]]);
  if (paint === "limit") return legend(Object.keys(LIMITS).map((limit) => [limit, limitPaint(limit)]));
  if (paint === "other") return legend([["slower here", "var(--worse)"], ["same", "var(--cold)"], ["faster here", "var(--better)"], ["only here", "var(--alone)"]]);
  return null;
}

function nodeOf(model, section, place, fill, choose) {
  const time = timeText(section.latency_us), times = model.calls[section.id].length;
  const rect = svg("rect", { width: NODE.width, height: NODE.height });
  rect.style.fill = fill;
  return svg("g", {
    class: "node", transform: `translate(${place.x} ${place.y})`, tabindex: 0, role: "button", "data-section": section.id,
    "aria-label": `section ${section.id}, ${section.name}, ${time} modelled`,
    onclick: () => choose(section.id),
    onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(section.id); } },
    onmousemove: (event) => showTip(event, sectionTip(section, times)), onmouseleave: hideTip,
  }, rect,
  svg("text", { class: "near", x: 8, y: 18 }, fitted(`${section.id}  ${section.name}`, 11.5)),
  svg("text", { class: "near more", x: 8, y: 35 }, fitted(`${time}${times > 1 ? ` x ${times}` : ""} · ${section.limited_by || "-"} · ${plural(section.operators, "op")}`, 10.5)),
  svg("text", { class: "far", x: NODE.width / 2, y: 33 }, String(section.id)));
}

const ruler = new OffscreenCanvas(1, 1).getContext("2d");

/** As much of a text as a section has room for, in letters of so many pixels. */
function fitted(text, size) {
  ruler.font = `${size}px system-ui, sans-serif`;
  const shown = visible(text);
  let most = shown.length;
  while (most > 4 && ruler.measureText(cut(shown, most)).width > NODE.width - 10) most -= 1;
  return cut(shown, most);
}

function sectionTip(section, times) {
  return `${section.id} ${section.name} (${section.type})\n${timeText(section.latency_us)} modelled${times > 1 ? `, ${times} calls` : ""}, limited by ${section.limited_by || "nothing"}\n`
    + `${plural(section.operators, "operator")} in ${plural(section.groups.length, "group")}, ${exact(section.pcus)} PCUs, ${exact(section.pmus)} PMUs\n`
    + `in ${bytesText(section.bytes_in)}, weights ${bytesText(section.bytes_weights)}, out ${bytesText(section.bytes_out)}`;
}

const wayOf = (from, to) => to.x > from.x + NODE.width ? across(from, to) : downwards(from, to);

function edgePath(edge, places, kind) {
  const line = svg("path", { class: kind, d: wayOf(places[edge.from], places[edge.to]), "data-edge": `${edge.from} ${edge.to}` });
  line.style.strokeWidth = (0.8 + Math.min(Math.log2(1 + edge.bytes / 65536) / 5, 3)).toFixed(2);
  return line;
}

function across(from, to) {
  const x1 = from.x + NODE.width, y1 = from.y + NODE.height / 2, x2 = to.x, y2 = to.y + NODE.height / 2, bend = Math.max((x2 - x1) / 2, 12);
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** From the lower side of a section to the upper side of one that stands further down, or the other way round. */
function downwards(from, to) {
  const down = to.y >= from.y, y1 = from.y + (down ? NODE.height : 0), y2 = to.y + (down ? 0 : NODE.height);
  const x1 = from.x + NODE.width / 2, x2 = to.x + NODE.width / 2, bend = (down ? 1 : -1) * Math.max(Math.abs(y2 - y1) / 2, 12);
  return `M${x1} ${y1} C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2}`;
}

const layouts = new WeakMap();

function graphTab(page) {
  const { model, state, other } = page;
  const screen = Object.values(screenOf()).join(" ");
  if (layouts.get(model)?.screen !== screen) layouts.set(model, { ...layoutOf(model), screen });
  const layout = layouts.get(model), paint = painter(model, state.paint, other);
  const nodes = model.sections.map((section) => nodeOf(model, section, layout.places[section.id], paint(section), (id) => page.go({ section: id, symbol: null })));
  // Where there are many they are one line, as what lies on each other would add up.
  const edges = model.edges.length > CROWDED
    ? svg("path", { class: "edge crowded", d: model.edges.map((edge) => wayOf(layout.places[edge.from], layout.places[edge.to])).join("") })
    : model.edges.map((edge) => edgePath(edge, layout.places, "edge"));
  const besides = svg("g");
  const lanes = layout.lanes.map((lane) => svg("g", { class: "lane" }, svg("rect", { y: lane.y, width: layout.width, height: lane.height, rx: 8 })));
  const titles = layout.lanes.map((lane) => svg("g", { class: "lane" }, svg("text", { x: 12, y: lane.y + 0.68 * lane.head, "font-size": TITLE * lane.head }, lane.text)));
  const picture = svg("g", {}, lanes, edges, titles, besides, nodes);
  const surface = svg("svg", { tabindex: 0, "aria-label": "graph of sections" }, picture);
  const zoom = panZoom(surface, `graph ${state.which}`, {
    fit: () => {
      const k = Math.min(surface.clientWidth / (layout.width + 24), surface.clientHeight / (layout.height + 24), 1.4);
      return { kx: k, ky: k, x: Math.max((surface.clientWidth - k * layout.width) / 2, 12 * k), y: 12 * k };
    },
    draw: ({ x, y, kx }) => {
      picture.setAttribute("transform", `translate(${x} ${y}) scale(${kx})`);
      surface.classList.toggle("distant", kx < 0.5);
    },
    most: 6,
  });

  function mark() {
    const chosen = state.section, beside = new Set(chosen === null ? [] : [...model.before[chosen].keys(), ...model.after[chosen].keys()]);
    picture.classList.toggle("searched", Boolean(state.query || state.type || state.limit));
    nodes.forEach((node, id) => {
      node.classList.toggle("chosen", id === chosen);
      node.classList.toggle("beside", beside.has(id));
      node.classList.toggle("dim", !fits(model, model.sections[id], state));
    });
    const lines = chosen === null ? [] : [...model.before[chosen].values(), ...model.after[chosen].values()];
    replaceChildren(besides, lines.map((edge) => edgePath(edge, layout.places, "edge beside")));
  }
  const tools = el("div", { class: "tools" }, zoom.tools(),
    el("label", {}, "colour ", select(Object.entries(PAINTS).filter(([name]) => name !== "other" || other), state.paint, (value) => page.go({ paint: value }))),
    el("button", { onclick: () => {
      const place = layout.places[state.section ?? -1];
      if (place) zoom.centre(place.x + NODE.width / 2, place.y + NODE.height / 2, 1);
    }, title: "bring the chosen section to the middle" }, "find chosen"),
    paintLegend(state.paint), filterNote(page));
  return { full: true, mark, element: [tools, el("div", { class: "picture" }, surface)] };
}

function select(options, value, change) {
  return el("select", { onchange: (event) => change(event.target.value) },
    options.map(([name, text]) => el("option", { value: name, selected: name === value }, text)));
}

function filterNote({ model, state }) {
  if (!state.query && !state.type && !state.limit) return null;
  const count = model.sections.filter((section) => fits(model, section, state)).length;
  return el("span", { class: "faint" }, `${exact(count)} of ${plural(model.sections.length, "section")} found`);
}
