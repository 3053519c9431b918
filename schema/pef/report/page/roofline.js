// Work a second against work for each byte moved: what bounds a section, and how far it is from that.

function rooflineTab(page) {
  const { model, state } = page;
  const spots = model.sections.filter((section) => section.flops > 0 && bytesOf(section) > 0 && section.latency_us > 0)
    .map((section) => ({ section, x: section.flops / bytesOf(section), y: (1e6 * section.flops) / section.latency_us }));
  const left = model.sections.length - spots.length;
  if (!spots.length) return { element: el("p", {}, "No section computes anything, so that there is nothing to draw.") };
  const roofs = roofsOf(model);
  const xs = spots.map((spot) => spot.x), ys = [...spots.map((spot) => spot.y), ...roofs.flat.map((roof) => roof.value)];
  const box = { x0: floor10(Math.min(...xs)), x1: ceil10(Math.max(...xs)), y0: floor10(Math.min(...ys)), y1: ceil10(Math.max(...ys)) };
  const surface = svg("svg", { tabindex: 0, "aria-label": "roofline" });
  const circles = new Map();
  const together = new Map();
  for (const spot of spots) together.set(placeOf(spot), [...(together.get(placeOf(spot)) ?? []), spot.section.id]);
  const longest = Math.max(...spots.map((spot) => spot.section.latency_us));
  let drawnAt = "";

  function draw() {
    const width = surface.clientWidth, height = surface.clientHeight;
    if (!width || `${width} ${height}` === drawnAt) return;
    drawnAt = `${width} ${height}`;
    const scale = scaleOf(box, width, height);
    circles.clear();
    for (const spot of [...spots].sort((a, b) => b.section.latency_us - a.section.latency_us)) {
      const { section, x, y } = spot, same = together.get(placeOf(spot));
      const circle = svg("circle", {
        class: "spot", cx: scale.x(x), cy: scale.y(y), r: 3.5 + 9 * Math.sqrt(section.latency_us / longest), tabindex: 0, role: "button",
        "aria-label": `section ${section.id}, ${section.name}`, "data-section": section.id,
        onclick: () => page.go({ section: section.id, symbol: null }),
        onkeydown: (event) => { if (event.key === "Enter") page.go({ section: section.id, symbol: null }); },
        onmousemove: (event) => showTip(event, `${section.id} ${section.name}\n${countText(x)}FLOP/B, ${countText(y)}FLOP/s\n${timeText(section.latency_us)} modelled, limited by ${section.limited_by || "nothing"}${same.length > 1 ? `\n${plural(same.length, "section")} here: ${shortened(same.join(", "), 60)}` : ""}`),
        onmouseleave: hideTip,
      });
      circle.style.fill = strongPaint(section.limited_by);
      circles.set(section.id, circle);
    }
    const spotted = [...circles.values()].map((circle) => ["cx", "cy", "r"].map((name) => Number(circle.getAttribute(name))));
    const [lines, words] = roofLines(roofs, box, scale, spotted);
    replaceChildren(surface, axesOf(box, scale, width, height), lines, [...circles.values()], words);
    mark();
  }

  function mark() {
    for (const [id, circle] of circles) {
      circle.classList.toggle("chosen", id === state.section);
      circle.classList.toggle("dim", !fits(model, model.sections[id], state));
    }
  }
  new ResizeObserver(draw).observe(surface);
  const lines = [...roofs.flat, ...roofs.slopes].map((roof) => `${roof.name}: ${roof.how}`);
  return {
    full: true, mark,
    element: [
      el("div", { class: "tools" }, modelled(), legend(Object.keys(LIMITS).map((limit) => [`limited by ${limit}`, strongPaint(limit)])), filterNote(page),
        left ? el("span", { class: "faint" }, `${plural(left, "section")} without work or traffic not drawn`) : null),
      el("div", { class: "picture" }, surface),
      how("A spot is a section; the larger it is, the longer it takes.", "across: FLOP / (bytes in + bytes out + bytes of fixed weights)", "up: FLOP / modelled time", ...lines,
        roofs.flat.length ? [] : "The file does not hold the numbers of its device: it was written before format 0.6."),
    ],
  };
}

const placeOf = ({ x, y }) => `${x.toPrecision(3)} ${y.toPrecision(3)}`;

/** What no section can pass: rates of the chip, and speeds of regions and of one stream. */
function roofsOf(model) {
  const flat = [], slopes = [], share = numberOf(model, "compute_efficiency"), stream = numberOf(model, "stream_bandwidth");
  if (model.peak !== null) {
    flat.push({ name: "peak", value: model.peak, how: `peak_flops = ${countText(model.peak)}FLOP/s` });
    if (share !== null) flat.push({ name: "reached by programs", value: model.peak * share, how: `peak_flops x compute_efficiency = ${countText(model.peak)}FLOP/s x ${share}` });
  }
  for (const region of model.report.regions) {
    if (region.bandwidth && region.used) slopes.push({ name: region.name, value: region.bandwidth, how: `what estimates charge for the region, ${countText(region.bandwidth)}B/s` });
  }
  if (stream !== null) slopes.push({ name: "one stream", value: stream, how: `stream_bandwidth = ${countText(stream)}B/s: one tensor moves no faster` });
  return { flat, slopes };
}

const floor10 = (value) => 10 ** Math.floor(Math.log10(value) - 1e-9);
const ceil10 = (value) => 10 ** Math.ceil(Math.log10(value) + 1e-9);

function scaleOf(box, width, height) {
  const inner = { left: 84, right: width - 20, top: 14, bottom: height - 42 };
  const along = (value, low, high, from, to) => from + ((Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))) * (to - from);
  return { ...inner, x: (value) => along(value, box.x0, box.x1, inner.left, inner.right), y: (value) => along(value, box.y0, box.y1, inner.bottom, inner.top) };
}

function axesOf(box, scale) {
  const parts = [];
  for (let x = box.x0; x <= box.x1 * 1.001; x *= 10) {
    parts.push(svg("line", { class: "axis", x1: scale.x(x), x2: scale.x(x), y1: scale.top, y2: scale.bottom }));
    parts.push(svg("text", { class: "tick", x: scale.x(x), y: scale.bottom + 15, "text-anchor": "middle" }, countText(x).trim()));
  }
  for (let y = box.y0; y <= box.y1 * 1.001; y *= 10) {
    parts.push(svg("line", { class: "axis", x1: scale.left, x2: scale.right, y1: scale.y(y), y2: scale.y(y) }));
    parts.push(svg("text", { class: "tick", x: scale.left - 6, y: scale.y(y) + 4, "text-anchor": "end" }, `${countText(y)}FLOP/s`));
  }
  const wide = scale.right - scale.left > 350;
  parts.push(svg("text", { class: "word", x: (scale.left + scale.right) / 2, y: scale.bottom + 33, "text-anchor": "middle" }, wide ? "FLOP for each byte that crosses the border of the section" : "FLOP for each byte across the border"));
  return parts;
}

/** The roofs, and their names where no spot is, if there is such a place. */
function roofLines({ flat, slopes }, box, scale, spots) {
  const lines = [], words = [], ceiling = flat.length ? Math.max(...flat.map((roof) => roof.value)) : box.y1;
  for (const { name, value } of flat) {
    lines.push(svg("line", { class: "roof", stroke: "var(--compute)", x1: scale.left, x2: scale.right, y1: scale.y(value), y2: scale.y(value) }));
    const text = `${name}: ${countText(value)}FLOP/s`, wide = scale.right - scale.left - WORD * text.length - 4;
    words.push(roofWord(text, spots, [0, 0.25, 0.5, 0.75, 1].map((share) => [scale.right - 4 - Math.max(wide, 0) * share, scale.y(value) - 5])));
  }
  for (const { name, value } of slopes) {
    const from = Math.max(box.x0, box.y0 / value), to = Math.min(box.x1, ceiling / value);
    if (from >= to) continue;
    lines.push(svg("line", { class: "roof", stroke: "var(--streams)", x1: scale.x(from), y1: scale.y(from * value), x2: scale.x(to), y2: scale.y(to * value) }));
    const text = `${name}: ${countText(value)}B/s`;
    words.push(roofWord(text, spots, [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9].map((share) => from * (to / from) ** share)
      .map((at) => [scale.x(at) - 6, scale.y(at * value) - 8]).filter(([x], at) => !at || x - WORD * text.length > scale.left)));
  }
  return [lines, words];
}

const WORD = 6.2; // the width of a letter

/** A word that ends at the first of these places where it covers no spot. */
function roofWord(text, spots, places) {
  const covers = ([x, y]) => spots.some(([cx, cy, r]) => cx + r > x - WORD * text.length && cx - r < x && cy + r > y - 11 && cy - r < y + 3);
  const [x, y] = places.find((place) => !covers(place)) ?? places[0];
  return svg("text", { class: "word", x, y, "text-anchor": "end", "pointer-events": "none" }, text);
}
