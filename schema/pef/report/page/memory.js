// What lies where in each region while the schedule runs: calls from left to right, addresses upwards.

// Kinds of one colour are told of together.
const KIND_PAINT = {
  WEIGHT: "streams", CONSTANT: "streams", BUFFER: "fill", ACTIVATION: "compute", INPUT: "link", OUTPUT: "link",
  GRADIENT: "held", OPT_STATE: "launch", ARGIN: "fill",
};
const STRIP = 54;
const MARGIN = 74;

/** Symbols of a region as boxes; a pack is drawn under its parts. */
function boxesOf(model, region) {
  const end = model.schedule.length;
  return model.symbols.filter((symbol) => symbol.region === region && symbol.bytes > 0)
    .map((symbol) => ({ symbol, left: Math.max(symbol.first_call, -1), right: Math.min(symbol.last_call + 1, end + 1), low: symbol.address, high: symbol.address + symbol.bytes }))
    .sort((a, b) => b.symbol.bytes - a.symbol.bytes || a.symbol.id - b.symbol.id);
}

/** From when to when each piece of a region is taken. */
function spansOf(model, region) {
  const spans = new Map();
  for (const symbol of model.symbols) {
    if (symbol.region !== region || symbol.allocation === null) continue;
    const span = spans.get(symbol.allocation) ?? { first: Infinity, last: -Infinity };
    spans.set(symbol.allocation, { first: Math.min(span.first, symbol.first_call), last: Math.max(span.last, symbol.last_call) });
  }
  return spans;
}

/** Bytes that are alive at each call, by pieces of the region: what shares one counts once. */
function aliveOf(model, region) {
  const end = model.schedule.length;
  const steps = new Array(end + 2).fill(0);
  for (const [allocation, { first, last }] of spansOf(model, region)) {
    const { bytes } = model.report.allocations[allocation];
    steps[Math.max(first, 0)] += bytes;
    steps[Math.min(last, end) + 1] -= bytes;
  }
  let alive = 0;
  return steps.slice(0, Math.max(end, 1)).map((step) => { alive += step; return alive; });
}

function memoryTab(page) {
  const { model, state } = page;
  const used = model.report.regions.filter((region) => region.used > 0);
  if (!used.length) return { element: el("p", {}, "No symbol has a planned place.") };
  const region = used.find((each) => each.name === state.region) ?? used[0];
  const boxes = boxesOf(model, region.name), alive = aliveOf(model, region.name), end = model.schedule.length;
  const canvas = el("canvas", { tabindex: 0, "aria-label": `memory map of ${region.name}` });
  let drawn = [];

  const frame = () => ({ left: MARGIN, top: 8, width: canvas.clientWidth - MARGIN - 12, height: canvas.clientHeight - STRIP - 44 });
  // All of the region at first, or what comes and goes where that is asked for.
  const range = () => state.part === "transient" && region.persistent < region.used ? [region.persistent, region.used] : [0, region.used];
  const zoom = panZoom(canvas, `memory ${state.which} ${region.name} ${state.part}`, {
    both: false, most: 4000,
    fit: () => {
      const { left, top, width, height } = frame(), [low, high] = range();
      const kx = width / (end + 2), ky = -height / (high - low);
      return { kx, ky, x: left + kx, y: top + height - ky * low };
    },
    draw: (view) => { drawn = drawMap(canvas, { view, boxes, alive, region, model, state, frame: frame() }); },
  });

  const hit = (event) => {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    return drawn.findLast((each) => x >= each.x && x <= each.x + each.w && y >= each.y && y <= each.y + each.h)?.symbol;
  };
  canvas.addEventListener("mousemove", (event) => {
    const symbol = event.buttons ? undefined : hit(event);
    if (symbol) showTip(event, symbolTip(symbol, end)); else hideTip();
  });
  canvas.addEventListener("mouseleave", hideTip);
  canvas.addEventListener("click", (event) => {
    const symbol = hit(event);
    if (symbol) page.go({ symbol: symbol.id, section: null });
  });
  const kinds = [...new Set(boxes.map((box) => box.symbol.kind))];
  const tools = el("div", { class: "tools" },
    el("label", {}, "region ", select(used.map((each) => [each.name, `${each.name}: ${bytesText(each.used)} of ${bytesText(each.capacity)}`]), region.name, (value) => page.go({ region: value }))),
    region.persistent && region.persistent < region.used
      ? el("label", {}, "show ", select([["whole", "all that is used"], ["transient", "what comes and goes"]], state.part, (value) => page.go({ part: value }))) : null,
    zoom.tools(), el("span", { class: "faint" }, "wheel: both ways; with Shift calls alone, with Alt addresses alone"));
  return {
    full: true, mark: zoom.redraw,
    element: [tools, kindLegend(kinds), el("div", { class: "picture" }, canvas)],
  };
}

function kindLegend(kinds) {
  const by = new Map();
  for (const kind of kinds) by.set(KIND_PAINT[kind] ?? "faint", [...(by.get(KIND_PAINT[kind] ?? "faint") ?? []), kind]);
  return legend([...by].map(([paint, names]) => [names.join(", "), colour(paint)]));
}

function symbolTip(symbol, end) {
  const calls = `${symbol.first_call < 0 ? "start" : symbol.first_call} .. ${symbol.last_call >= end ? "end" : symbol.last_call}`;
  return `${symbol.name} (${symbol.kind})\n${bytesText(symbol.bytes)} at ${hex(symbol.address)}, calls ${calls}\n${symbol.dtype} ${shapeText(symbol.shape)}`;
}

/** Draw the boxes, the axes and the strip of bytes alive; return where the boxes are. */
function drawMap(canvas, { view, boxes, alive, region, model, state, frame }) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const paint = (name) => style.getPropertyValue(`--${name}`).trim();
  pen.scale(ratio, ratio);
  pen.font = "11.5px system-ui, sans-serif";
  const drawn = [];
  pen.save();
  pen.beginPath();
  pen.rect(frame.left, frame.top, frame.width, frame.height);
  pen.clip();
  const words = queryWords(state.query);
  for (const { symbol, left, right, low, high } of boxes) {
    const x = view.x + view.kx * left, y = view.y + view.ky * high;
    const w = Math.max(view.kx * (right - left), 1), h = Math.max(view.ky * (low - high), 0.75);
    if (x > frame.left + frame.width || x + w < frame.left || y > frame.top + frame.height || y + h < frame.top) continue;
    drawn.push({ symbol, x, y, w, h });
    const found = words.every((word) => symbol.name.toLowerCase().includes(word) || symbol.kind.toLowerCase().includes(word));
    pen.globalAlpha = found ? 0.82 : 0.12;
    pen.fillStyle = paint(KIND_PAINT[symbol.kind] ?? "faint");
    pen.fillRect(x, y, w, h);
    pen.globalAlpha = 1;
    if (h > 3) {
      pen.strokeStyle = paint("ground");
      pen.lineWidth = 0.6;
      pen.strokeRect(x, y, w, h);
    }
  }
  nameBoxes(pen, drawn, frame, paint("label"));
  drawChosen(pen, { view, drawn, model, state, frame, paint });
  pen.restore();
  drawAxes(pen, { view, region, frame, paint, model });
  drawStrip(pen, { view, alive, region, frame, paint, height });
  return drawn.map((each) => ({ ...each, y: each.y - 1, h: each.h + 2 }));
}

/** Frame the chosen symbol, or the symbols of the chosen section and its calls. */
function drawChosen(pen, { view, drawn, model, state, frame, paint }) {
  const section = state.section === null ? null : model.sections[state.section];
  const marked = new Set(section ? [...section.inputs, ...section.weights, ...section.outputs] : [state.symbol]);
  pen.strokeStyle = paint("chosen");
  pen.lineWidth = section ? 1.5 : 3;
  for (const { symbol, x, y, w, h } of drawn) if (marked.has(symbol.id)) pen.strokeRect(x, y - 1, w, h + 2);
  if (section === null) return;
  pen.setLineDash([2, 3]);
  for (const call of model.calls[section.id]) pen.strokeRect(view.x + view.kx * call, frame.top - 2, Math.max(view.kx, 1), frame.height + 4);
  pen.setLineDash([]);
}

/** Write the names of boxes with room for them: over all boxes, and of a pack where no name of a part is. */
function nameBoxes(pen, drawn, frame, ink) {
  const taken = [];
  pen.fillStyle = ink;
  for (const { symbol, x, y, w, h } of drawn.toReversed()) {
    const left = Math.max(x, frame.left), room = Math.min(x + w, frame.left + frame.width) - left;
    const most = Math.floor((room - 8) / 6.2), middle = y + h / 2;
    if (w <= 50 || h <= 13 || most < 4) continue;
    const text = shortened(symbol.name, most), right = left + 8 + 6.2 * text.length;
    if (taken.some((each) => Math.abs(each.middle - middle) < 12 && each.left < right && left < each.right)) continue;
    taken.push({ middle, left, right });
    pen.fillText(text, left + 4, middle + 4);
  }
}

/** Where calls begin, in round numbers as far apart as their words need. */
function callTicks(view, frame, end) {
  const least = 72 / view.kx, unit = 10 ** Math.floor(Math.log10(Math.max(least, 1)));
  const step = [1, 2, 5, 10].map((times) => times * unit).find((size) => size >= least) ?? 1;
  const calls = [...new Array(Math.ceil(end / step)).keys()].map((at) => at * step);
  const ticks = [];
  for (const call of [-1, ...calls, end]) {
    const at = view.x + view.kx * call, text = call < 0 ? "start" : call === end ? "end" : `call ${call}`;
    const last = frame.left + frame.width + 8 - 6.5 * text.length;
    if (at < frame.left - 1 || at > frame.left + frame.width || (at > last && call < end)) continue;
    const x = Math.min(at, last);
    if (call === end && ticks.length && x < ticks.at(-1)[0] + 55) ticks.pop();
    if (!ticks.length || x >= ticks.at(-1)[0] + 34) ticks.push([x, text]);
  }
  return ticks;
}

function drawAxes(pen, { view, region, frame, paint, model }) {
  pen.strokeStyle = paint("line");
  pen.fillStyle = paint("faint");
  pen.lineWidth = 1;
  pen.strokeRect(frame.left, frame.top, frame.width, frame.height);
  for (let at = 0; at <= 6; at += 1) {
    const y = frame.top + (frame.height * at) / 6, address = (y - view.y) / view.ky;
    if (address >= 0) pen.fillText(bytesText(Math.round(address)), 6, Math.min(Math.max(y + 4, frame.top + 10), frame.top + frame.height));
  }
  for (const [x, text] of callTicks(view, frame, model.schedule.length)) pen.fillText(text, x, frame.top + frame.height + 14);
  const y = view.y + view.ky * region.persistent;
  if (region.persistent && y > frame.top && y < frame.top + frame.height) {
    pen.setLineDash([5, 4]);
    pen.strokeStyle = paint("accent");
    pen.beginPath();
    pen.moveTo(frame.left, y);
    pen.lineTo(frame.left + frame.width, y);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/** The bytes alive at each call, under the map, beside the most that any call needs. */
function drawStrip(pen, { view, alive, region, frame, paint, height }) {
  const top = height - STRIP - 4, most = Math.max(region.used, 1);
  pen.save();
  pen.beginPath();
  pen.rect(frame.left, top, frame.width, STRIP);
  pen.clip();
  pen.fillStyle = paint("streams");
  alive.forEach((bytes, call) => {
    const x = view.x + view.kx * call, tall = (STRIP * bytes) / most;
    pen.fillRect(x, top + STRIP - tall, Math.max(view.kx, 1), tall);
  });
  pen.restore();
  pen.strokeStyle = paint("line");
  pen.strokeRect(frame.left, top, frame.width, STRIP);
  pen.fillStyle = paint("faint");
  pen.fillText("alive", 6, top + 12);
  pen.fillText(bytesText(region.used), 6, top + 27);
}
