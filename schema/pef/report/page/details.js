// What is beside the picture: one section or one symbol, with all its numbers and how they came about.

function detailsOf(page) {
  const { model, state } = page;
  if (state.section !== null) return sectionDetails(page, model.sections[state.section]);
  return state.symbol === null ? null : symbolDetails(page, model.symbols[state.symbol]);
}

function sectionDetails(page, section) {
  const { model } = page;
  return [
    el("h2", {}, `Section ${section.id}: ${section.name}`),
    el("p", {}, `${section.type}, ${plural(section.operators, "operator")} in ${plural(section.groups.length, "fusion group")}, called ${plural(model.calls[section.id].length, "time")}`,
      model.calls[section.id].length ? ` (call ${shortened(model.calls[section.id].join(", "), 40)})` : ""),
    timePart(model, section), usePart(model, section), trafficPart(page, section), operatorsPart(model, section), neighboursPart(page, section),
    el("h3", {}, "From a shell"),
    el("div", { class: "how" }, shellLines(model, `explain FILE ${section.id}`, `inspect FILE --sections ${section.id}`, `extract FILE --section ${section.id} -o section.onnx`)),
  ];
}

const quoted = (word) => /^[\w.:/-]+$/.test(word) ? word : visible(word) === word ? `'${word.replaceAll("'", "'\\''")}'` : coded(word);

/** A word with codes of its bytes where it has signs that cannot be seen, as bash and zsh read it. */
function coded(word) {
  const bytes = (sign) => [...new TextEncoder().encode(sign)].map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  return `$'${word.replace(/[\\']/g, "\\$&").replace(UNSEEN, bytes)}'`;
}
const shellLines = (model, ...lines) => lines.map((line) => `sambac ${line.replace("FILE", () => quoted(model.file))}`).join("\n");

function timePart(model, section) {
  const { terms } = section;
  const title = el("h3", {}, `Time: ${timeText(section.latency_us)} `, modelled());
  if (terms === null) {
    return [title, el("p", { class: "faint" }, section.latency_us ? "How it comes about is not in the file: it was written before format 0.6." : "Nothing is estimated for it: the host does what happens here.")];
  }
  const most = Math.max(...TERMS.map((term) => terms[term]), 1e-9);
  const hidden = terms.compute > terms.streams ? "streams" : "compute";
  return [
    title,
    el("p", {}, `Limited by ${section.limited_by}.`),
    el("div", { class: "bars" }, TERMS.map((term) => [
      el("span", { title: MEANING[term] }, term), bar([[terms[term] / most, colour(term), MEANING[term]]]),
      el("span", { class: term === hidden ? "number faint" : "number" }, timeText(terms[term])),
    ])),
    how(`latency = launch + fill + held + max(compute, streams) + link`,
      `        = ${us(terms.launch)} + ${us(terms.fill)} + ${us(terms.held)} + max(${us(terms.compute)}, ${us(terms.streams)}) + ${us(terms.link)}`,
      `        = ${us(terms.launch + terms.fill + terms.held + Math.max(terms.compute, terms.streams) + terms.link)} us (in the file: ${us(section.latency_us)} us)`,
      ...TERMS.map((term) => `${term}: ${MEANING[term]}`),
      "", ...launchHow(model), ...computeHow(model, section), ...streamsHow(model, section)),
  ];
}

const us = (time) => time.toFixed(3);

function launchHow(model) {
  return ["launch", "fill"].map((name) => model.device.has(name) ? sourced(model.device.get(name)) : `${name}: not in the file`);
}

/** The slowest operator, with numbers of the device put in. */
function computeHow(model, section) {
  const peak = model.peak, share = numberOf(model, "compute_efficiency"), all = numberOf(model, "pcus");
  const timed = operatorsOf(section).filter((op) => op.pcus > 0).sort((a, b) => b.flops / b.pcus - a.flops / a.pcus);
  if (!timed.length || peak === null || share === null || all === null) return [];
  const [slowest] = timed, time = (1e6 * slowest.flops * all) / (slowest.pcus * peak * share);
  return ["", `compute: the slowest operator is ${slowest.name} (${slowest.op_type})`,
    `  = FLOP / (its PCUs x peak_flops / pcus x compute_efficiency)`,
    `  = ${exact(slowest.flops)} / (${exact(slowest.pcus)} x ${peak.toExponential().replace("+", "")} FLOP/s / ${exact(all)} x ${share})`, `  = ${us(time)} us`];
}

/** The time of all that crosses the border, as if all of it streamed. */
function streamsHow(model, section) {
  const stream = numberOf(model, "stream_bandwidth"), several = section.groups.length > 1 ? numberOf(model, "fused_streams") ?? 1 : 1;
  const moved = new Map();
  for (const id of [...section.inputs, ...section.weights, ...section.outputs]) {
    const { region, device_bytes: bytes } = model.symbols[id];
    if (region !== null) moved.set(region, [...(moved.get(region) ?? []), bytes]);
  }
  if (!moved.size) return [];
  const lines = ["", "held + streams: what crosses the border, region by region,", "  max(bytes / bandwidth of the region, largest / (streams x stream_bandwidth))"];
  let total = 0;
  for (const [region, sizes] of moved) {
    const rate = model.regions.get(region)?.bandwidth ?? null, largest = Math.max(...sizes);
    const whole = rate ? (1e6 * sum(sizes)) / rate : 0, single = stream ? (1e6 * largest) / (several * stream) : 0;
    total += Math.max(whole, single);
    lines.push(`  ${region}: max(${exact(sum(sizes))} B / ${rate ? `${countText(rate)}B/s` : "unknown"}, ${exact(largest)} B / ${stream ? `(${Number(several.toFixed(4))} x ${countText(stream)}B/s)` : "unknown"}) = ${us(Math.max(whole, single))} us`);
  }
  const said = section.terms.held + section.terms.streams;
  lines.push(Math.abs(said - total) < 0.002 + 1e-6 * said
    ? "  which is what the section is charged."
    : `  = ${us(total)} us if all streamed at once; the section is charged ${us(said)} us, as what is held is moved apart and of tables only the rows that are picked move: sambac explain names them.`);
  return lines;
}

function usePart(model, section) {
  const units = [["PCUs", section.pcus, "pcus"], ["PMUs", section.pmus, "pmus"]];
  const sram = numberOf(model, "pmus") !== null && numberOf(model, "pmu_bytes") !== null ? numberOf(model, "pmus") * numberOf(model, "pmu_bytes") : null;
  const rows = [...units.map(([name, count, key]) => [name, count, numberOf(model, key), exact]), ["SRAM", section.sram, sram, bytesText]];
  return [
    el("h3", {}, "Use of the chip ", modelled()),
    el("div", { class: "bars" }, rows.map(([name, count, all, text]) => [
      el("span", {}, name), all ? bar([[count / all, count > all ? "var(--bad)" : "var(--accent)", `${text(count)} of ${text(all)}`]]) : el("span"),
      el("span", { class: "number" }, all ? `${text(count)} of ${text(all)} · ${percent(count / all)}` : text(count)),
    ])),
    how("PCUs: one for each operator that computes; what is left is divided by work, none more than it takes to keep up with memory.",
      "PMUs: for each value that the section writes and reads a double buffer, min(2 x bytes, stage_pmus x pmu_bytes); one for each value that streams in or out; the bytes of what is held, at most half of the chip.",
      "SRAM: the bytes of these buffers.", ...["pcus", "pmus", "pmu_bytes", "stage_pmus"].filter((name) => model.device.has(name)).map((name) => sourced(model.device.get(name)))),
  ];
}

function trafficPart(page, section) {
  const rows = [["in", section.inputs, section.bytes_in], ["fixed weights", section.weights, section.bytes_weights], ["out", section.outputs, section.bytes_out]];
  return [
    el("h3", {}, "What crosses its border"),
    rows.some(([, ids]) => ids.some((id) => sizeText(page.model.symbols[id]) === "open")) ? el("p", { class: "faint" }, "Sums take 1 for every open dimension.") : null,
    rows.map(([name, ids, bytes]) => ids.length ? el("details", { open: ids.length <= 8 }, el("summary", {}, `${name}: ${plural(ids.length, "symbol")}, ${bytesText(bytes)}`), ids.map((id) => symbolLine(page, id, deviceSize))) : null),
    section.in_place.length ? el("p", { class: "faint" }, `Updates in place: ${shortened(section.in_place.map(({ old, new: next }) => page.model.symbols[old].name + (old === next ? "" : ` as ${page.model.symbols[next].name}`)).join(", "), 300)}`) : null,
  ];
}

function symbolLine(page, id, size = sizeText) {
  const symbol = page.model.symbols[id];
  return el("div", {}, el("button", { class: "jump", onclick: () => page.go({ symbol: id, section: null }) }, symbol.name), el("span", { class: "faint" }, ` ${size(symbol)} ${symbol.region ?? "no planned place"} ${symbol.kind}`));
}

function sectionLine(page, id, text = "") {
  const section = page.model.sections[id];
  return el("div", {}, el("button", { class: "jump", onclick: () => page.go({ section: id, symbol: null }) }, `${id} ${section.name}`), el("span", { class: "faint" }, ` ${section.type}${text}`));
}

function operatorsPart(model, section) {
  const work = section.flops || 1;
  return [
    el("h3", {}, "Operators"),
    section.groups.map((group) => el("details", { open: section.groups.length <= 4 && group.operators.length <= 20 },
      el("summary", {}, `group ${group.name}: ${plural(group.operators.length, "operator")}`),
      el("table", {}, el("tbody", {}, group.operators.map((op) => el("tr", {},
        el("td", {}, el("b", {}, op.op_type), op.name === group.name ? "" : ` ${op.name}`),
        el("td", { class: "right", title: "work of the operator" }, op.flops ? `${countText(op.flops)}FLOP` : ""),
        el("td", { class: "right", title: "share of the work of the section" }, op.flops ? percent(op.flops / work) : ""),
        el("td", { class: "right", title: "modelled: its share of the compute units" }, op.pcus ? plural(op.pcus, "PCU") : ""))))))),
  ];
}

/** What flows along an edge. */
function edgeText(model, edge) {
  const open = edge.symbols.some((id) => sizeText(model.symbols[id]) === "open");
  return open ? edge.bytes ? `${bytesText(edge.bytes)} and what is open` : "open" : bytesText(edge.bytes);
}

function neighboursPart(page, section) {
  const { before, after } = page.model;
  const part = (title, edges, key) => edges.size ? el("details", { open: edges.size <= 8 }, el("summary", {}, `${title} ${plural(edges.size, "section")}`),
    [...edges.values()].map((edge) => sectionLine(page, edge[key], `, ${edgeText(page.model, edge)}`))) : null;
  return [el("h3", {}, "In the graph"), part("reads of", before[section.id], "from"), part("is read by", after[section.id], "to")];
}

function symbolDetails(page, symbol) {
  const { model } = page, { report } = model, end = model.schedule.length;
  const region = symbol.region === null ? null : model.regions.get(symbol.region);
  const held = spansOf(model, symbol.region).get(symbol.allocation) ?? { first: symbol.first_call, last: symbol.last_call };
  const shared = symbol.allocation === null ? [] : model.symbols.filter((other) => other.allocation === symbol.allocation && other.id !== symbol.id);
  const facts = [
    ["kind", symbol.kind], ["type", `${dtypeText(symbol)} ${shapeText(symbol.shape)}`], ["size", symbol.bytes ? `${bytesText(symbol.bytes)} (${exact(symbol.bytes)} bytes)` : sizeText(symbol)],
    symbol.declared ? ["moved by the device", `${deviceSize(symbol)}, as ${symbol.declared}`] : null,
    ["place", symbol.region === null ? "none planned" : `${symbol.region} ${hex(symbol.address)} .. ${hex(symbol.address + symbol.bytes)}`],
    ["keeps its content", symbol.duration.toLowerCase()],
    ["lives", `from ${symbol.first_call < 0 ? "the start" : `call ${symbol.first_call}`} to ${symbol.last_call >= end ? "the end" : `call ${symbol.last_call}`}`],
    held.first < symbol.first_call || held.last > symbol.last_call ? ["its memory is taken", `from ${held.first < 0 ? "the start" : `call ${held.first}`} to ${held.last >= end ? "the end" : `call ${held.last}`}`] : null,
    ["content in the file", symbol.data === null ? "none" : `${symbol.data.segment} + ${hex(symbol.data.offset)}, ${bytesText(symbol.data.bytes)}`],
    symbol.allocation === null ? null : [`allocation ${symbol.allocation}`, factsText(report.allocations[symbol.allocation], ["id", "region", "address"])],
    symbol.origins.length ? ["computed from", symbol.origins.join(", ")] : null,
  ].filter(Boolean);
  const links = [["belongs to", symbol.parameter], ["lies in the pack", symbol.pack]].filter(([, id]) => id !== null);
  const spill = report.spills.find((row) => row.symbol === symbol.id);
  return [
    el("h2", {}, `Symbol ${symbol.id}: ${symbol.name}`),
    el("table", {}, el("tbody", {}, facts.map(([name, value]) => el("tr", {}, el("td", { class: "faint" }, name), el("td", {}, value))),
      links.map(([name, id]) => el("tr", {}, el("td", { class: "faint" }, name), el("td", {}, symbolLine(page, id)))))),
    spill ? el("p", { class: "warning" }, spillText(spill)) : null,
    region ? how(`size: elements x bytes of ${symbol.dtype}`, `address: that of its allocation ${symbol.allocation} (${hex(report.allocations[symbol.allocation].address)}) + ${exact(symbol.address - report.allocations[symbol.allocation].address)}`,
      `${region.name} below ${hex(region.persistent)} holds what lives through the whole program; above, places are shared by what never lives at once`) : null,
    symbol.region ? el("p", {}, el("button", { onclick: () => page.go({ tab: "memory", region: symbol.region, part: "whole" }) }, "show on the memory map")) : null,
    shared.length ? [el("h3", {}, "In the same allocation"), shared.slice(0, 50).map((other) => symbolLine(page, other.id)), shared.length > 50 ? el("p", { class: "faint" }, `and ${exact(shared.length - 50)} more`) : null] : null,
    sectionList(page, "Written by", model.writers[symbol.id]), sectionList(page, "Read by", model.readers[symbol.id]),
    el("h3", {}, "From a shell"), el("div", { class: "how" }, shellLines(model, `explain FILE ${quoted(`symbol:${symbol.name}`)}`, ...[...model.writers[symbol.id], ...model.readers[symbol.id]].slice(0, 1).map((id) => `inspect FILE --symbols --sections ${id}`))),
  ];
}

/** What it costs that a symbol spilled; of tables the file does not say which rows move. */
function spillText({ region, moved, us: took, hbm_us: near, cost_us: cost }) {
  const compared = took === null || near === null ? "" : `: ${timeText(took)} instead of ${timeText(near)} in HBM, were each of them whole and alone`;
  return `Lies in ${region} because ${region === "HOST" ? "no nearer region has room" : "HBM is full"}. The calls of a run touch ${bytesText(moved)} of it${compared} (modelled).${cost === null ? "" : ` A run takes ${timeText(cost)} longer for it${region === "HOST" ? " than in DDR" : ""} (modelled).`}`;
}

/** Fields of a row that say something, as text; those too that are new. */
function factsText(row, known) {
  const told = Object.entries(row).filter(([name, value]) => !known.includes(name) && value !== null && value !== "" && value !== false);
  return told.map(([name, value]) => value === true ? name : `${name} ${typeof value === "number" ? stated(value) : value}`).join(", ");
}

function sectionList(page, title, ids) {
  return ids.length ? [el("h3", {}, `${title} ${plural(ids.length, "section")}`), ids.slice(0, 60).map((id) => sectionLine(page, id)), ids.length > 60 ? el("p", { class: "faint" }, `and ${exact(ids.length - 60)} more`) : null] : null;
}
