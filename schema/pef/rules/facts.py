"""What graphs and symbols say of themselves: names of their own, and what sections agree with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from pef.program import GraphRole, NamedGraph, Program, Section, SectionType
from pef.stages import ORDER, WRITES, before, behind
from pef.states import STATE_KINDS, has_states, is_training, states_of
from pef.symbols import Duration, Shape, SymbolKind

# They run once for several batches, of which they would read one alone. What they share with
# earlier sections, such as weights of half precision as float32, is of no batch and may be read.
# What REDUCE sections list is looked at elsewhere.
_ONCE = frozenset({*before(SectionType.FWD), *behind(SectionType.BCKWD)} - {SectionType.REDUCE})
_OF_WEIGHTS = frozenset({SymbolKind.GRADIENT, SymbolKind.OPT_STATE})


def durations(program: Program) -> Iterator[str]:
    """Sections bind constants as weights and write none; what may be a state is said to be one."""
    bound = {index for section in program.sections for index in section.weights}
    written = {index for section in program.sections for index in section.outputs}
    lasting = has_states(program)
    for index, symbol in enumerate(program.symbols):
        is_constant = symbol.duration is Duration.CONSTANT
        is_state = symbol.duration is Duration.STATE
        if index in bound and not is_constant:
            yield f"'{symbol.name}' is bound as a weight, but is {symbol.duration.name}"
        if is_constant and index in written:
            yield f"the constant '{symbol.name}' is written"
        if not lasting and (is_state or symbol.pack is not None):
            what = "a state" if is_state else "part of a pack"
            yield f"'{symbol.name}' is {what} of a program that says it has none"
        if is_state and symbol.kind not in STATE_KINDS:
            yield f"'{symbol.name}' of kind {symbol.kind.name} is said to be a state"
        held = symbol.kind in STATE_KINDS and symbol.first_call < 0
        if lasting and held and symbol.duration is Duration.TRANSIENT:
            yield f"'{symbol.name}' is there before the first call, but neither state nor constant"


def relations(program: Program) -> Iterator[str]:
    """Gradients have the shape of what they are of; weights alone have gradients and states."""
    symbols = program.symbols
    pairs = [
        (symbols[port.symbol], symbols[port.gradient])
        for graph in program.graphs
        for port in (*graph.inputs, *graph.outputs)
        if port.gradient is not None
    ]
    for symbol in symbols:
        if symbol.parameter is None:
            continue
        owner = symbols[symbol.parameter]
        if symbol.kind not in _OF_WEIGHTS or owner.kind is not SymbolKind.WEIGHT:
            kinds = f"{symbol.kind.name} to the {owner.kind.name}"
            yield f"'{symbol.name}' is said to belong as {kinds} '{owner.name}'"
        if symbol.kind is SymbolKind.GRADIENT:
            pairs.append((owner, symbol))
    for owner, gradient in pairs:
        if not _may_be_equal(owner.shape, gradient.shape):
            yield f"'{owner.name}' and its gradient '{gradient.name}' differ in shape"


def _may_be_equal(one: Shape, other: Shape) -> bool:
    """Tell whether no size of two shapes contradicts: open ones are known at run time."""
    if one is None or other is None:
        return True
    sizes = zip(one, other, strict=False)
    return len(one) == len(other) and all(
        a == b for a, b in sizes if isinstance(a, int) and isinstance(b, int)
    )


def section_types(program: Program) -> Iterator[str]:
    """Sections are of the types that the role of their graph has, and do what their type says."""
    trains = any(graph.role is GraphRole.TRAIN for graph in program.graphs)
    if trains != is_training(program):
        yield "its graphs and the features that it requires disagree on whether it trains"
    for graph in program.graphs if trains else ():
        if graph.role is GraphRole.TRAIN:
            yield from _misfits(graph, program)
        yield from _order(graph, program)


def _sections(graph: NamedGraph, program: Program) -> Iterator[Section]:
    """Yield the section of each call of a graph."""
    for call in range(graph.first_call, graph.first_call + graph.calls):
        yield program.sections[program.schedule[call]]


def _misfits(graph: NamedGraph, program: Program) -> Iterator[str]:
    """Why sections of a training step are not what their types say."""
    cleared: set[int] = set()  # made by ZEROGRAD sections, which come first
    for section in _sections(graph, program):
        yield from _misfit(section, program, cleared)
        if section.type is SectionType.ZEROGRAD:
            cleared.update(section.outputs)
    yield from _added_twice(graph, program)


def _misfit(section: Section, program: Program, cleared: Collection[int]) -> Iterator[str]:
    """Why a section is not what its type says."""
    who = f"section '{section.name}' of type {section.type.name}"
    of_a_batch = {SymbolKind.INPUT} if section.type in _ONCE else set()
    if section.type is SectionType.ZEROGRAD:
        of_a_batch |= {SymbolKind.ACTIVATION, SymbolKind.OUTPUT}
    may = WRITES[section.type]
    for index in section.inputs:
        symbol = program.symbols[index]
        if symbol.kind in of_a_batch and index not in cleared:
            yield f"{who} reads '{symbol.name}', which it would have of one batch alone"
    for index in section.outputs:
        symbol = program.symbols[index]
        if symbol.kind not in may:
            yield f"{who} writes '{symbol.name}' of kind {symbol.kind.name}"


def _added_twice(graph: NamedGraph, program: Program) -> Iterator[str]:
    """Why BCKWD sections are not what adds up gradients: each is added to once for a batch."""
    states = states_of(program)
    added: set[int] = set()
    for section in _sections(graph, program):
        if section.type is not SectionType.BCKWD:
            continue
        for index in states.all.intersection(section.outputs):
            parts = states.packs.get(index, (index,))
            if not added.isdisjoint(parts):
                name = program.symbols[index].name
                yield f"section '{section.name}' of type BCKWD writes '{name}', as one before does"
            added.update(parts)


# Gradients may be cleared any time before the backward pass, and are reduced where it fits.
_RANK: dict[SectionType, int] = {kind: rank for rank, kind in enumerate(ORDER)}
del _RANK[SectionType.REDUCE]
_RANK[SectionType.ZEROGRAD] = _RANK[SectionType.FWD]


def _order(graph: NamedGraph, program: Program) -> Iterator[str]:
    """Why the types of a graph's calls are out of order; reductions stand where they fit."""
    last = 0
    for call in range(graph.first_call, graph.first_call + graph.calls):
        section = program.sections[program.schedule[call]]
        rank = _RANK.get(section.type, last)
        if rank < last:
            yield f"call {call} (section '{section.name}') of type {section.type.name} is too late"
        last = max(last, rank)


def seeds(program: Program) -> Iterator[str]:
    """The gradient of an output is an input of its graph, and that of an input an output."""
    for graph in program.graphs:
        ends = ((graph.outputs, graph.inputs, "input"), (graph.inputs, graph.outputs, "output"))
        for ports, others, what in ends:
            there = {port.symbol for port in others}
            for port in ports:
                if port.gradient is not None and port.gradient not in there:
                    yield f"the gradient of '{port.name}' is no {what} of graph '{graph.name}'"
        if graph.role is GraphRole.TRAIN:
            yield from _starts(graph, program)


def _starts(graph: NamedGraph, program: Program) -> Iterator[str]:
    """Why the outputs of a training step are not what its backward pass starts from."""
    seen: dict[int, str] = {}
    makers = {index: section for section in _sections(graph, program) for index in section.outputs}
    for port in dict.fromkeys(graph.outputs):
        if port.gradient is None:
            continue
        maker = makers.get(port.symbol)
        if maker is not None and maker.type is not SectionType.FWD:
            who = f"section '{maker.name}' of type {maker.type.name}"
            yield f"{who} writes '{port.name}', which the backward pass starts from"
        if program.symbols[port.gradient].data is None:
            yield f"the gradient of '{port.name}' has no default, which starts the backward pass"
        if seen.setdefault(port.gradient, port.name) != port.name:
            yield f"'{seen[port.gradient]}' and '{port.name}' have one gradient to start from"
    if not seen:
        yield f"no output of graph '{graph.name}' has a gradient that its training starts from"


def names(program: Program) -> Iterator[str]:
    """Things of one kind have different names, and none is empty."""
    yield from _distinct("symbol", (symbol.name for symbol in program.symbols))
    yield from _distinct("section", (section.name for section in program.sections))
    yield from _distinct("segment", (segment.name for segment in program.segments))
    yield from _distinct("graph", (graph.name for graph in program.graphs))
    yield from _distinct("argin", (argin.name for argin in program.argins))
    yield from _distinct("alias", (alias.name for alias in program.aliases))
    for graph in program.graphs:
        for way, ports in (("input", graph.inputs), ("output", graph.outputs)):
            # One symbol may be an output twice; one name never stands for two symbols.
            once = dict.fromkeys(ports)
            yield from _distinct(f"{way} of graph '{graph.name}'", (port.name for port in once))


def _distinct(kind: str, found: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in found:
        if not name:
            yield f"a {kind} has no name"
        elif name in seen:
            yield f"two things have one name: {kind} '{name}'"
        seen.add(name)


RULES = (
    durations,
    relations,
    seeds,
    section_types,
    names,
)
