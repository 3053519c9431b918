"""The schedule: what a call reads has been written, and programs fit the sections that run them.

Of programs that run while some argins are zero: what they leave out, and what stands in for them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

from pef.program import HostKernel, NamedGraph, Program, Section, SectionType, Variant
from pef.states import ARGIN_VARIANTS, States, is_training, states_of
from pef.symbols import Symbol, SymbolKind

# Nothing but a call makes these.
COMPUTED = frozenset({SymbolKind.ACTIVATION, SymbolKind.OUTPUT})


def beginnings(program: Program) -> Iterator[str]:
    """Chips and stages begin one after another with calls of their graph, none with the first."""
    for graph in program.graphs:
        for what, calls in (("chips", graph.chip_calls), ("stages", graph.stage_calls)):
            starts = (graph.first_call, *calls, graph.first_call + graph.calls)
            if calls and any(end <= start for start, end in pairwise(starts)):
                yield (
                    f"the {what} of graph '{graph.name}' begin with the calls {list(calls)}, "
                    f"which are not calls after its first, {graph.first_call}, one after another"
                )


def bindings(program: Program) -> Iterator[str]:
    """A section binds as many symbols as each of its programs has formal names."""
    for section in program.sections:
        who = f"section '{section.name}'"
        if bool(section.variants) == (section.type is SectionType.REDUCE):
            yield f"{who} of type {section.type.name} has {len(section.variants)} programs"
        bound = (len(section.inputs), len(section.weights), len(section.outputs))
        for index in dict.fromkeys(variant.program for variant in section.variants):
            formal = program.programs[index]
            named = (len(formal.inputs), len(formal.weights), len(formal.outputs))
            if named != bound:
                yield (
                    f"{who} binds {bound} inputs, weights and outputs, its program "
                    f"{index} has {named}"
                )


def distinct_operands(program: Program) -> Iterator[str]:
    """A section binds a symbol once as an input, as a weight, and as an output."""
    for section in program.sections:
        for what, bound in (
            ("inputs", section.inputs),
            ("weights", section.weights),
            ("outputs", section.outputs),
        ):
            twice = [index for index, count in Counter(bound).items() if count > 1]
            if twice:
                name = program.symbols[twice[0]].name
                yield f"section '{section.name}' has '{name}' twice among its {what}"


def formal_names(program: Program) -> Iterator[str]:
    """The formal names of a program are unique; an empty one is that of an absent port."""
    for index, section_program in enumerate(program.programs):
        sources = (*section_program.inputs, *section_program.weights)
        for names in (sources, section_program.outputs):
            there = [*filter(None, names)]
            if len(set(there)) < len(there):
                yield f"program {index} has two tensors of the same formal name"
        if not all(section_program.weights):
            yield f"program {index} has a weight without a formal name"


def section_weights(program: Program) -> Iterator[str]:
    """What a section binds as weights has content in the file."""
    symbols = program.symbols
    for section in program.sections:
        for index in section.weights:
            if symbols[index].data is None:
                name = symbols[index].name
                yield f"section '{section.name}' binds '{name}', which has no data, as a weight"


def in_place_updates(program: Program) -> Iterator[str]:
    """An update in place reads and writes the same bytes."""
    for section in program.sections:
        for source, target in section.in_place:
            before = program.symbols[section.inputs[source]]
            after = program.symbols[section.outputs[target]]
            if _place(before) != _place(after) or before.allocation is None:
                yield (
                    f"section '{section.name}' updates '{before.name}' in place as "
                    f"'{after.name}', which lies elsewhere"
                )


def _place(symbol: Symbol) -> tuple[int | None, int, int]:
    return symbol.allocation, symbol.offset, symbol.size


def data_flow(program: Program) -> Iterator[str]:
    """Calls read what the caller or earlier calls wrote, and graphs return what was written.

    Each graph of a training program begins anew, with the states and what the caller gives.
    """
    if not is_training(program):
        yield from _walk(program, range(len(program.schedule)), program.graphs)
        return
    for graph in program.graphs:
        yield from _walk(program, range(graph.first_call, graph.first_call + graph.calls), (graph,))


def _walk(program: Program, calls: range, graphs: Iterable[NamedGraph]) -> Iterator[str]:
    """The flow of `calls`, after which `graphs` return their results."""
    kernels: dict[int, list[HostKernel]] = {}
    for kernel in program.host_kernels:
        kernels.setdefault(kernel.section, []).append(kernel)
    flow = _Liveness(program.symbols, states_of(program), len(program.schedule))
    for index, symbol in enumerate(program.symbols):
        if symbol.first_call < 0:
            flow.written.add(index)
            if symbol.kind in COMPUTED and calls.start == 0:
                yield f"'{symbol.name}' is said to be there before any call computes it"
    for call in calls:
        index = program.schedule[call]
        for kernel in kernels.get(index, ()):
            yield from flow.prepare(call, kernel)
        yield from flow.step(call, program.sections[index])
    for graph in graphs:
        yield from flow.finish(graph)


@dataclass(frozen=True, slots=True)
class _Liveness:
    """Walks calls of the schedule; `written` are the symbols that have a value by now."""

    symbols: tuple[Symbol, ...]
    states: States
    calls: int
    written: set[int] = field(default_factory=set)

    def prepare(self, call: int, kernel: HostKernel) -> Iterator[str]:
        """A host kernel, right before the section of a call."""
        where = f"host kernel '{kernel.kind}' of call {call}"
        yield from self.reads(where, call, kernel.inputs)
        yield from self.writes(where, call, kernel.outputs, frozenset())

    def step(self, call: int, section: Section) -> Iterator[str]:
        """One call."""
        where = f"call {call} (section '{section.name}')"
        yield from self.reads(where, call, (*section.inputs, *section.weights))
        replaced = frozenset(section.outputs[target] for _, target in section.in_place)
        yield from self.writes(where, call, section.outputs, replaced)

    def reads(self, where: str, call: int, symbols: Iterable[int]) -> Iterator[str]:
        """Something reads `symbols`; a pack has been written when all that it spans has."""
        for index in symbols:
            if index not in self.written and not self.written.issuperset(
                self.states.packs.get(index, (index,))
            ):
                yield f"{where} reads '{self.symbols[index].name}', which nothing has written"
            yield from self.alive(where, call, index)

    def writes(
        self, where: str, call: int, symbols: Iterable[int], replaced: frozenset[int]
    ) -> Iterator[str]:
        """Something writes `symbols`; of what has been written only states and `replaced` anew."""
        for index in symbols:
            again = index in self.written and index not in replaced
            if again and index not in self.states.all:
                yield f"{where} writes '{self.symbols[index].name}', which has been written"
            yield from self.alive(where, call, index)
            self.written.update((index, *self.states.packs.get(index, ())))

    def alive(self, where: str, call: int, index: int) -> Iterator[str]:
        """The symbol's memory is its own during the call."""
        symbol = self.symbols[index]
        if not symbol.first_call <= call <= symbol.last_call:
            yield (
                f"{where} uses '{symbol.name}', which lives from call {symbol.first_call} to "
                f"{symbol.last_call}"
            )

    def finish(self, graph: NamedGraph) -> Iterator[str]:
        """The ports of a graph, after all calls; results are taken before another graph's calls."""
        end = graph.first_call + graph.calls
        needed = end if end == self.calls else end - 1
        for port in graph.inputs:
            if self.symbols[port.symbol].first_call >= graph.first_call:
                yield f"input '{port.name}' of graph '{graph.name}' is computed by its own calls"
        for port in graph.outputs:
            symbol = self.symbols[port.symbol]
            if port.symbol not in self.written:
                yield f"output '{port.name}' of graph '{graph.name}' is never written"
            if symbol.last_call < needed:
                yield f"output '{port.name}' of graph '{graph.name}' does not live to its end"


def conditions(program: Program) -> Iterator[str]:
    """Programs depend on argins, on none in two ways, and some program fits whatever they are."""
    argins = {argin.symbol for argin in program.argins}
    for section in program.sections:
        who = f"section '{section.name}'"
        for variant in filter(_depends, section.variants):
            asked = {*variant.zeros, *variant.nonzeros}
            for symbol in sorted(asked - argins):
                name = program.symbols[symbol].name
                yield f"{who} chooses a program by '{name}', which is no argin"
            for symbol in sorted({*variant.zeros} & {*variant.nonzeros}):
                name = program.symbols[symbol].name
                yield f"{who} has a program for '{name}' being zero and not"
            if ARGIN_VARIANTS not in program.requires.features:
                yield f"{who} chooses a program by argins, and the feature is not required"
        if section.variants and all(map(_depends, section.variants)):
            yield f"{who} has no program that fits whatever argins are"


def absent_ports(program: Program) -> Iterator[str]:
    """Only programs that argins choose lack ports: inputs, and outputs that stay as they are."""
    for section in program.sections:
        updated = {target for _, target in section.in_place}
        for variant in section.variants:
            yield from _absent(program, section, variant, updated)


def _absent(
    program: Program, section: Section, variant: Variant, updated: set[int]
) -> Iterator[str]:
    formal = program.programs[variant.program]
    who = f"program {variant.program} of section '{section.name}'"
    if not all((*formal.inputs, *formal.outputs)) and not _depends(variant):
        yield f"{who} lacks inputs or outputs, and runs whatever argins are"
    # Of outputs that the section has not, `bindings` tells.
    for position, (name, symbol) in enumerate(zip(formal.outputs, section.outputs, strict=False)):
        if not name and position not in updated:
            output = program.symbols[symbol].name
            yield f"{who} does not make '{output}', which nothing else has made"


def _depends(variant: Variant) -> bool:
    return bool(variant.zeros or variant.nonzeros)


RULES = (
    beginnings,
    bindings,
    distinct_operands,
    formal_names,
    section_weights,
    in_place_updates,
    data_flow,
    conditions,
    absent_ports,
)
