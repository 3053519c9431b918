// A report with what follows from it: who writes and reads each symbol, what flows between sections.

/** The calls that a time is told of: the step that a program trains by, else all graphs. */
function scopes(report) {
  const all = { name: "all graphs", first: 0, calls: report.schedule };
  if (report.graphs.length < 2) return [{ ...all, name: report.graphs.length ? report.graphs[0].name : "main" }];
  const each = report.graphs.map((graph) => ({
    name: graph.name, first: graph.first_call,
    calls: report.schedule.slice(graph.first_call, graph.first_call + graph.calls),
  }));
  const steps = report.training ? report.training.steps : [];
  const first = each.filter((scope) => steps[0] === scope.name);
  return [...first, ...(first.length ? [] : [all]), ...each.filter((scope) => !first.includes(scope)), ...(first.length ? [all] : [])];
}

function modelOf(report) {
  const { sections, symbols, schedule } = report;
  const model = {
    report, sections, symbols, schedule, scopes: scopes(report),
    device: new Map(report.device.map((row) => [row.name, row])),
    regions: new Map(report.regions.map((row) => [row.name, row])),
    writers: symbols.map(() => []), readers: symbols.map(() => []),
    calls: sections.map(() => []), before: sections.map(() => new Map()), after: sections.map(() => new Map()),
    ...named(report.file ? report.file.name : report.source.name || "program"),
  };
  for (const section of sections) {
    for (const symbol of new Set(section.outputs)) model.writers[symbol].push(section.id);
    for (const symbol of new Set([...section.inputs, ...section.weights])) model.readers[symbol].push(section.id);
  }
  schedule.forEach((section, call) => model.calls[section].push(call));
  throughPacks(model);
  model.edges = edgesOf(model);
  for (const edge of model.edges) {
    model.after[edge.from].set(edge.to, edge);
    model.before[edge.to].set(edge.from, edge);
  }
  model.words = sections.map((section) => searchable(section, symbols));
  model.peak = numberOf(model, "peak_flops");
  return model;
}

/** How a file is called in commands, and how the page calls it, which tells it from another of its name. */
const named = (name) => ({ file: name, name });
const numberOf = (model, name) => model.device.has(name) ? model.device.get(name).value : null;

/** Who writes or reads a pack does so with its parts, and who writes or reads a part with a part of the pack. */
function throughPacks(model) {
  model.parts = model.symbols.map(() => []);
  for (const { id, pack } of model.symbols) if (pack !== null) model.parts[pack].push(id);
  for (const users of [model.writers, model.readers]) {
    const own = users.map((ids) => [...ids]);
    for (const { id, pack } of model.symbols) {
      if (pack === null) continue;
      users[id] = [...new Set([...users[id], ...own[pack]])].sort((a, b) => a - b);
      users[pack] = [...new Set([...users[pack], ...own[id]])].sort((a, b) => a - b);
    }
  }
}

/** What one section writes and another one reads later in the same graph; of packs, part by part. */
function edgesOf({ report, sections, symbols, parts }) {
  const found = new Map();
  const each = (ids) => new Set(ids.flatMap((id) => parts[id].length ? parts[id] : [id]));
  for (const graph of report.graphs) {
    const last = new Map();
    for (const to of report.schedule.slice(graph.first_call, graph.first_call + graph.calls)) {
      for (const symbol of each(sections[to].inputs)) {
        const from = last.get(symbol);
        if (from === undefined || from === to) continue;
        const key = `${from} ${to}`;
        if (!found.has(key)) found.set(key, { from, to, bytes: 0, symbols: [] });
        const edge = found.get(key);
        if (edge.symbols.includes(symbol)) continue;
        edge.bytes += symbols[symbol].device_bytes;
        edge.symbols.push(symbol);
      }
      for (const symbol of each(sections[to].outputs)) last.set(symbol, to);
    }
  }
  return [...found.values()];
}

// Whose names nobody chose: they are called after the operators that make them.
const MADE = new Set(["ACTIVATION", "CONSTANT"]);

/** What a section is found by: its own names, those of its operators, and of what crosses its border with a name. */
function searchable(section, symbols) {
  const crossing = [...section.inputs, ...section.weights, ...section.outputs].map((id) => symbols[id])
    .flatMap((symbol) => MADE.has(symbol.kind) ? [] : [symbol.name]);
  const inside = section.groups.flatMap((group) => [group.name, ...group.operators.flatMap((op) => [op.name, op.op_type])]);
  return [`#${section.id}`, section.name, section.type, section.limited_by, ...new Set([...inside, ...crossing])].join("\n").toLowerCase();
}

/** Tell whether a section has all words of a query, and the type and limit that are asked for. */
function fits(model, section, { query, type, limit }) {
  if (type && section.type !== type) return false;
  if (limit && section.limited_by !== limit) return false;
  return queryWords(query).every((word) => model.words[section.id].includes(word));
}

const queryWords = (query) => query.toLowerCase().split(/\s+/).filter(Boolean);
const bytesOf = (section) => section.bytes_in + section.bytes_out + section.bytes_weights;
const operatorsOf = (section) => section.groups.flatMap((group) => group.operators);

/** Sums over calls: a section counts as often as it is called. */
function totalsOf(model, calls) {
  const called = calls.map((id) => model.sections[id]);
  const terms = Object.fromEntries(TERMS.map((term) => [term, 0]));
  let untold = 0;
  for (const { terms: told, latency_us: time } of called) {
    if (told === null) { untold += time; continue; }
    for (const term of ["launch", "fill", "held", "link"]) terms[term] += told[term];
    // Only the longer of both takes time; the other one is hidden behind it.
    if (told.compute > told.streams) terms.compute += told.compute;
    else terms.streams += told.streams;
  }
  return {
    calls: called.length, sections: new Set(calls).size, terms, untold,
    latency: sum(called.map((section) => section.latency_us)), flops: sum(called.map((section) => section.flops)),
    traffic: sum(called.map(bytesOf)), operators: sum(called.map((section) => section.operators)),
  };
}
