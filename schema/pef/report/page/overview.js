// What was compiled, what one run of it costs, and what takes most of that.

const SLOWEST = 12;

function overviewTab(page) {
  const { model, state, other } = page, { report } = model;
  const scope = model.scopes[state.scope] ?? model.scopes[0], totals = totalsOf(model, scope.calls);
  const options = report.options, level = typeof options.level === "string" ? ` at ${options.level}` : "";
  return {
    element: [
      el("p", {}, `${report.source.name || "A model"} compiled for ${report.arch}${level} by ${report.producer.tool} ${report.producer.version}.`),
      report.warnings.map((warning) => el("div", { class: "warning" }, warning)),
      model.scopes.length > 1 ? el("div", { class: "tools" }, el("label", {}, `one ${runOf(model, scope)} of `, select(model.scopes.map((each, at) => [String(at), each.name]), String(state.scope), (value) => page.go({ scope: Number(value) })))) : null,
      tiles(page, totals, other ? totalsOf(other, (other.scopes[state.scope] ?? other.scopes[0]).calls) : null, runOf(model, scope)),
      el("div", { class: "columns" },
        el("section", {}, timeOverview(model, totals), slowest(page, scope)),
        el("section", {}, regionOverview(page), deviceOverview(model))),
      reportOverview(page),
    ],
  };
}

/** What a program that trains repeats is a step, all else is a run. */
const runOf = ({ report }, scope) => (report.training?.steps ?? []).includes(scope.name) ? "step" : "run";

function tiles({ go, model }, totals, before, run) {
  const file = model.report.file;
  const rows = [
    [`time of a ${run}`, timeText(totals.latency), totals.latency, before?.latency, true, "sections", `the sum over the calls of the ${run} of the time of each section; that of the host is not in it`],
    ["work", `${countText(totals.flops)}FLOP`, totals.flops, before?.flops, true, "roofline", `the sum over the calls of the ${run}, from shapes of operators`],
    ["to and from memory", bytesText(totals.traffic), totals.traffic, before?.traffic, true, "sections", "the sum over the calls of bytes in, out and of fixed weights: the sizes of the symbols that cross their borders"],
    ["sections", exact(totals.sections), totals.sections, before?.sections, false, "graph", `in ${plural(totals.calls, "call")}`],
    ["operators", exact(totals.operators), totals.operators, before?.operators, false, "graph", "of the sections, a call counting each time"],
    ["data of weights", bytesText(model.report.totals.weight_bytes), null, null, false, "symbols", `the content of ${plural(model.report.totals.weights, "weight")} in the file${file ? `, which has ${bytesText(file.bytes)}` : ""}${model.report.absent.length ? `; ${exact(model.report.absent.length)} absent` : ""}`],
  ];
  return el("div", { class: "tiles" }, rows.map(([name, text, value, was, estimated, tab, why]) => el("button", { class: "tile", title: why, onclick: () => go({ tab }) },
    el("span", { class: "faint what" }, el("span", {}, name), estimated ? modelled() : null), el("b", {}, text), delta(value, was), el("span", { class: "faint" }, why))));
}

function delta(value, was) {
  if (typeof was !== "number" || typeof value !== "number" || !was) return null;
  const share = value / was - 1;
  return el("span", { class: `delta ${share > 1e-9 ? "bad" : share < -1e-9 ? "good" : "faint"}` }, `${share >= 0 ? "+" : "−"}${Math.abs(100 * share).toFixed(1)} % beside the other file`, el("br"));
}

function timeOverview(model, totals) {
  const spent = TERMS.filter((term) => totals.terms[term] > 0);
  if (!totals.latency) return null;
  return [
    el("h2", {}, "Where the time goes ", modelled()),
    bar([...spent.map((term) => [totals.terms[term] / totals.latency, colour(term), `${term}: ${timeText(totals.terms[term])}`]), [totals.untold / totals.latency, "var(--faint)", "not told"]]),
    legend(spent.map((term) => [`${term} ${percent(totals.terms[term] / totals.latency)}`, colour(term), MEANING[term]])),
    how("Each section takes launch + fill + held + max(compute, streams) + link; here these are added up over the calls.",
      "Of compute and streams the longer one counts, as the other one is hidden behind it.",
      ...TERMS.map((term) => `${term}: ${timeText(totals.terms[term])}, ${MEANING[term]}`)),
  ];
}

function slowest(page, scope) {
  const { model } = page, counts = new Map();
  for (const id of scope.calls) counts.set(id, (counts.get(id) ?? 0) + 1);
  const rows = [...counts].map(([id, count]) => ({ id, time: count * model.sections[id].latency_us })).sort((a, b) => b.time - a.time || a.id - b.id);
  const total = sum(rows.map((row) => row.time)) || 1, most = rows[0]?.time || 1;
  return [
    el("h2", {}, "Slowest sections ", modelled()),
    el("div", { class: "bars" }, rows.slice(0, SLOWEST).map(({ id, time }) => {
      const section = model.sections[id];
      return [el("button", { class: "jump", onclick: () => page.go({ section: id, symbol: null }) }, shortened(`${id} ${section.name}`, 34)),
        bar([[time / most, strongPaint(section.limited_by), `limited by ${section.limited_by}`]]),
        el("span", { class: "number" }, `${timeText(time)} · ${percent(time / total)}`)];
    })),
    rows.length > SLOWEST ? el("button", { class: "jump", onclick: () => page.go({ tab: "sections" }) }, `all ${exact(rows.length)} sections`) : null,
  ];
}

function regionOverview(page) {
  const regions = page.model.report.regions;
  return [
    el("h2", {}, "Memory"),
    el("div", { class: "bars" }, regions.map((region) => [
      el("button", { class: "jump", onclick: () => page.go({ tab: "memory", region: region.name, part: "whole" }) }, region.name),
      bar([[region.persistent / region.capacity, "var(--streams)", `lives throughout: ${bytesText(region.persistent)}`],
        [(region.used - region.persistent) / region.capacity, "var(--compute)", `comes and goes: ${bytesText(region.used - region.persistent)}`]]),
      el("span", { class: "number" }, `${bytesText(region.used)} of ${bytesText(region.capacity)}`),
    ])),
    legend([["lives throughout", "var(--streams)"], ["comes and goes", "var(--compute)"]]),
    how("used: the highest address that the plan needs; peak live: the most bytes that are alive at once, which no plan can be below.",
      ...regions.map((region) => `${region.name}: ${region.used ? `used ${exact(region.used)} B / peak live ${exact(region.peak_live)} B = ${region.ratio}` : "nothing lies there"}; ${region.bandwidth ? `estimates charge ${countText(region.bandwidth)}B/s` : "its bandwidth is not known"}`)),
  ];
}

function deviceOverview({ report }) {
  if (!report.device.length) return null;
  return [
    el("h2", {}, `Device ${report.arch}`),
    tableOf("device", [column("number", "name"), right("value", "value", (_, row) => quantity(row)), column("known", "origin"), column("source", "source")], report.device).element,
  ];
}

function reportOverview(page) {
  const { report } = page.model;
  const ports = report.graphs.flatMap((graph) => ["inputs", "outputs"].flatMap((way) => graph[way].map((port) => ({ ...port, graph: graph.name, way: way.slice(0, -1) }))));
  const options = Object.entries(report.options).map(([name, value]) => ({ name, value: optionText(value) }));
  return el("div", { class: "columns short" },
    el("section", {}, el("h2", {}, "Inputs and outputs"), tableOf("ports", [column("name", "name"), column("way", "way"), column("graph", "graph"), column("type", (row) => `${row.dtype} ${shapeText(row.shape)}`), right("size", "bytes", (_, row) => sizeText(row))], ports,
      { choose: (row) => page.go({ symbol: row.symbol, section: null }) }).element),
    el("section", { class: "wide" }, el("h2", {}, "Graphs ", modelled()), plain("graphs", report.graphs.map(({ inputs: _in, outputs: _out, ...row }) => row))),
    el("section", {}, el("h2", {}, "Operators"), tableOf("types", [column("type", "op_type"), right("count", "count", exact)], report.op_types, { choose: (row) => page.go({ tab: "sections", query: row.op_type }) }).element),
    el("section", {}, el("h2", {}, "Options"), tableOf("options", [column("option", "name"), column("value", "value")], options).element),
    report.training ? el("section", {}, el("h2", {}, "Training memory"), tableOf("training", [column("kind", "kind"), right("tensors", "tensors", exact), right("elements", "elements", exact), right("size", "bytes", bytesText)], report.training.memory).element) : null,
    report.spills.length ? el("section", {}, el("h2", {}, "Spills ", modelled()), tableOf("spills", [column("symbol", (row) => report.symbols[row.symbol].name), column("region", "region"), right("moved", "moved", bytesText), right("time", "us", (time) => time === null ? "-" : timeText(time)), right("in HBM", "hbm_us", (time) => time === null ? "-" : timeText(time))], report.spills,
      { choose: (row) => page.go({ symbol: row.symbol, section: null }) }).element) : null);
}
