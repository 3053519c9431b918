// This file beside another one: what a run costs in both, and which sections, symbols and options differ.

function compareTab(page) {
  const { model: b, other: a, state } = page; // from the other file to the one that is shown
  const sides = [a, b].map((model) => ({ model, scope: model.scopes[state.scope] ?? model.scopes[0] }));
  const [left, right_] = sides.map(({ model, scope }) => totalsOf(model, scope.calls));
  return {
    element: [
      el("p", {}, `${b.name} (${sides[1].scope.name}) beside ${a.name} (${sides[0].scope.name}); changes are from ${a.name} to ${b.name}. Sections, symbols and operators are the same where their names are.`),
      el("div", { class: "columns short" },
        el("section", {}, el("h2", {}, `One ${runOf(b, sides[1].scope)} `, modelled()), runTable(left, right_, a, b).element, termBars(sides, [left, right_]), typeTable(sides).element),
        el("section", {}, el("h2", {}, "Regions"), regionTable(a, b).element, el("h2", {}, "Options and device"), optionTable(a, b).element)),
      el("div", { class: "short" },
        el("h2", {}, "Sections ", modelled()), sectionPairs(page).element,
        el("h2", {}, "Operators"), operatorText(a, b),
        el("h2", {}, "Symbols that differ"), symbolPairs(page).element),
    ],
  };
}

function change(before, after) {
  if (!before && !after) return "";
  if (!before) return "new";
  if (!after) return "gone";
  const share = 100 * (after / before - 1);
  return Math.abs(share) < 0.05 ? "=" : `${share > 0 ? "+" : "−"}${Math.abs(share).toFixed(1)} %`;
}

const changeColumn = (of) => right("change", (row) => { const [x, y] = of(row); return x ? y / x - 1 : y ? Infinity : 0; }, (_, row) => change(...of(row)), "from the other file to this one");

function runTable(x, y, a, b) {
  const rows = [
    ["time", x.latency, y.latency, timeText], ["work", x.flops, y.flops, (n) => `${countText(n)}FLOP`], ["to and from memory", x.traffic, y.traffic, bytesText],
    ["sections", x.sections, y.sections, exact], ["calls", x.calls, y.calls, exact], ["operators", x.operators, y.operators, exact],
    ["data of weights", a.report.totals.weight_bytes, b.report.totals.weight_bytes, bytesText],
    ["file", a.report.file?.bytes ?? 0, b.report.file?.bytes ?? 0, bytesText],
  ];
  return tableOf("run pair", [column("what", 0), right(a.name, 1, (value, row) => row[3](value)), right(b.name, 2, (value, row) => row[3](value)), changeColumn((row) => [row[1], row[2]])], rows);
}

/** The sections of a run by type: how many in both files, and their time. */
function typeTable(sides) {
  const types = [...new Set(sides.flatMap(({ model, scope }) => scope.calls.map((id) => model.sections[id].type)))];
  const told = ({ model, scope }, type) => {
    const called = scope.calls.map((id) => model.sections[id]).filter((section) => section.type === type);
    return { sections: new Set(called).size, time: sum(called.map((section) => section.latency_us)) };
  };
  const rows = types.map((type) => ({ type, sides: sides.map((side) => told(side, type)) }));
  const of = (key, text) => right(key, (row) => row.sides[0][key], (_, row) => row.sides.map((side) => text(side[key])).join(" → "), `in ${sides.map((side) => side.model.name).join(", then in ")}`);
  return tableOf("type pair", [column("type", "type"), of("sections", exact), of("time", timeText),
    changeColumn((row) => row.sides.map((side) => side.time))], rows);
}

function termBars(sides, totals) {
  const most = Math.max(...totals.map((each) => each.latency), 1e-9);
  return [
    el("div", { class: "bars" }, sides.map(({ model }, at) => [
      el("span", {}, shortened(model.name, 24)), bar(TERMS.map((term) => [totals[at].terms[term] / most, colour(term), `${term}: ${timeText(totals[at].terms[term])}`])),
      el("span", { class: "number" }, timeText(totals[at].latency))])),
    legend(TERMS.map((term) => [term, colour(term), MEANING[term]])),
  ];
}

function regionTable(a, b) {
  const names = [...new Set([...a.regions.keys(), ...b.regions.keys()])];
  const rows = names.flatMap((name) => ["used", "persistent", "peak_live", "capacity"].map((key) => [`${name} ${key.replace("_", " ")}`, a.regions.get(name)?.[key] ?? 0, b.regions.get(name)?.[key] ?? 0]));
  return tableOf("region pair", [column("region", 0), right(a.name, 1, bytesText), right(b.name, 2, bytesText), changeColumn((row) => [row[1], row[2]])], rows.filter((row) => row[1] || row[2]));
}

function optionTable(a, b) {
  const [x, y] = [optionFacts(a), optionFacts(b)];
  const rows = [...new Set([...x.keys(), ...y.keys()])].map((name) => [name, x.get(name), y.get(name)]).filter((row) => row[1]?.exactly !== row[2]?.exactly);
  // Numbers that differ by less than is shown of them are shown as they stand in the files.
  const text = (side) => (row) => row[1]?.text === row[2]?.text ? row[side].exactly : row[side]?.text;
  return tableOf("option pair", [column("what", 0), column(a.name, text(1)), column(b.name, text(2))], rows);
}

/** What a file was compiled of, with what and for what device: as it is shown, and exactly. */
function optionFacts({ report }) {
  const same = (text) => ({ text, exactly: text }), { source, producer } = report;
  return new Map([
    ["model", same(source.name)], ["model's SHA-256", { text: `${source.sha256.slice(0, 16)}…`, exactly: source.sha256 }],
    ["arch", same(report.arch)], ["producer", same(`${producer.tool} ${producer.version}`)],
    ...Object.entries(report.options).map(([name, value]) => [name, same(optionText(value))]),
    ...report.device.map((row) => [`device: ${row.name}`, { text: quantity(row), exactly: `${row.value} ${row.unit}` }]),
  ]);
}

function sectionPairs(page) {
  const { model: b, other: a, state } = page;
  const rows = [
    ...a.sections.filter((section) => fits(a, section, state)).map((section) => ({ name: section.name, a: section, b: b.named.get(section.name) })),
    ...b.sections.filter((section) => !a.named.has(section.name) && fits(b, section, state)).map((section) => ({ name: section.name, a: undefined, b: section })),
  ];
  const time = (side) => right(`time in ${page[side === "b" ? "model" : "other"].name}`, (row) => row[side]?.latency_us ?? null, (value) => value === null ? "-" : timeText(value), "modelled");
  const pair = (name, key, text = exact) => column(name, (row) => row.a?.[key] ?? row.b?.[key], { right: true, text: (_, row) => {
    const told = [row.a, row.b].filter(Boolean).map((section) => text(section[key]));
    return told[0] === (told[1] ?? told[0]) ? told[0] : told.join(" → ");
  } });
  return tableOf("section pairs", [
    column("section", "name"), column("in", (row) => row.a && row.b ? "both" : row.a ? `only ${a.name}` : `only ${b.name}`), time("a"), time("b"),
    changeColumn((row) => [row.a?.latency_us ?? 0, row.b?.latency_us ?? 0]),
    pair("limited by", "limited_by", String), pair("operators", "operators"), pair("PCUs", "pcus"), pair("PMUs", "pmus"), pair("in", "bytes_in", bytesText), pair("out", "bytes_out", bytesText),
  ], rows, { choose: (row) => row.b ? page.go({ section: row.b.id, symbol: null }) : page.go({ which: 1 - state.which, section: row.a.id, symbol: null }) });
}

function operatorText(a, b) {
  const homes = (model) => new Map(model.sections.flatMap((section) => operatorsOf(section).map((op) => [op.name, section.name])));
  const [x, y] = [homes(a), homes(b)];
  const both = [...x.keys()].filter((name) => y.has(name)), moved = both.filter((name) => x.get(name) !== y.get(name));
  const rows = moved.map((name) => [name, x.get(name), y.get(name)]);
  return [
    el("p", {}, `${exact(both.length)} in both files, ${exact(moved.length)} of them in a section of another name; ${exact(x.size - both.length)} only in ${a.name}, ${exact(y.size - both.length)} only in ${b.name}.`),
    rows.length ? tableOf("operator pairs", [column("operator", 0), column(`section in ${a.name}`, 1), column(`section in ${b.name}`, 2)], rows).element : null,
  ];
}

function symbolPairs(page) {
  const { model: b, other: a } = page;
  const others = new Map(b.symbols.map((symbol) => [symbol.name, symbol])), names = new Set(a.symbols.map((symbol) => symbol.name));
  const facts = (symbol) => symbol ? `${symbol.kind} ${dtypeText(symbol)} ${shapeText(symbol.shape)} in ${symbol.region ?? "no region"}` : "-";
  const rows = [
    ...a.symbols.map((symbol) => ({ name: symbol.name, a: symbol, b: others.get(symbol.name) })),
    ...b.symbols.filter((symbol) => !names.has(symbol.name)).map((symbol) => ({ name: symbol.name, a: undefined, b: symbol })),
  ].filter((row) => facts(row.a) !== facts(row.b));
  return tableOf("symbol pairs", [column("symbol", "name"), column(a.name, (row) => facts(row.a)), column(b.name, (row) => facts(row.b)),
    right("size", (row) => row.a?.bytes ?? row.b.bytes, (_, row) => sizeText(row.a ?? row.b))], rows,
  { choose: (row) => row.b ? page.go({ symbol: row.b.id, section: null }) : page.go({ which: 1 - page.state.which, symbol: row.a.id, section: null }) });
}
