"""What graphs and symbols say of themselves agrees with what sections do with them."""

from __future__ import annotations

from collections.abc import Iterator

from pef.program import (
    Duration,
    GraphRole,
    NamedGraph,
    Program,
    Section,
    SectionType,
    Shape,
    SymbolKind,
)
from pef.states import STATE_KINDS, has_states, is_training

# What the sections of a training step write, by type. REDUCE sections compute nothing.
_PASSED_ON = frozenset({SymbolKind.ACTIVATION})
_WRITES = {
    SectionType.FWD: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.BUFFER},
    SectionType.BCKWD: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.GRADIENT},
    SectionType.GRADNORM: _PASSED_ON | {SymbolKind.OUTPUT, SymbolKind.GRADIENT},
    SectionType.OPT: _PASSED_ON | {SymbolKind.WEIGHT, SymbolKind.OPT_STATE},
    SectionType.ZEROGRAD: _PASSED_ON | {SymbolKind.GRADIENT},
}
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
        for call in range(graph.first_call, graph.first_call + graph.calls):
            section = program.sections[program.schedule[call]]
            if graph.role is GraphRole.TRAIN:
                yield from _misfit(section, program)
        yield from _order(graph, program)


def _misfit(section: Section, program: Program) -> Iterator[str]:
    """Why a section of a training step is not what its type says."""
    may = _WRITES.get(section.type, frozenset())
    for index in section.outputs:
        symbol = program.symbols[index]
        if symbol.kind not in may:
            who = f"section '{section.name}' of type {section.type.name}"
            yield f"{who} writes '{symbol.name}' of kind {symbol.kind.name}"


_RANK = {
    SectionType.ZEROGRAD: 0,
    SectionType.FWD: 0,
    SectionType.BCKWD: 1,
    SectionType.GRADNORM: 2,
    SectionType.OPT: 3,
}


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


RULES = (durations, relations, seeds, section_types)
