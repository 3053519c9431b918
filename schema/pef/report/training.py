"""The parts of a report that only programs with states have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod

from pef.graphs import trained_models
from pef.program import GraphRole, Program, SectionType
from pef.states import is_training, states_of
from pef.symbols import SymbolKind

from .memory_rows import AbsentRow, MemoryRow
from .rows import Training

_CONTENT = frozenset({SymbolKind.WEIGHT, SymbolKind.BUFFER})


def training(program: Program) -> Training | None:
    """Return what `program` trains, None if it does not."""
    if not is_training(program):
        return None
    steps = [graph.name for graph in program.graphs if graph.role is GraphRole.TRAIN]
    return Training(steps=steps, losses=[*_losses(program)], memory=_memory(program))


def _losses(program: Program) -> Iterator[str]:
    """Yield the outputs that training minimises, `model.output` where several models train."""
    several = len(trained_models(program.graphs)) > 1
    for graph in program.graphs:
        for port in graph.outputs:
            if port.gradient is not None:
                yield f"{graph.model}.{port.name}" if several else port.name


def absent(program: Program) -> list[AbsentRow]:
    """Return the parameters and buffers of which the file holds no content."""
    return [
        AbsentRow(symbol=index, bytes=symbol.size, name=symbol.name)
        for index, symbol in ((i, program.symbols[i]) for i in states_of(program).own)
        if symbol.data is None and symbol.kind in _CONTENT
    ]


def _memory(program: Program) -> list[MemoryRow]:
    """Return a row for each kind of tensor; packs count as what they span."""
    states = states_of(program)

    def of_kind(kind: SymbolKind) -> list[int]:
        return [index for index in states.own if program.symbols[index].kind is kind]

    weights = of_kind(SymbolKind.WEIGHT)
    owners = {s.parameter for s in program.symbols if s.kind is SymbolKind.GRADIENT}
    trained = [index for index in weights if index in owners]
    gradients = [
        index
        for index, symbol in enumerate(program.symbols)
        if symbol.kind is SymbolKind.GRADIENT and index not in states.packs
    ]
    rows = (
        ("parameters", trained),
        ("frozen parameters", sorted(set(weights).difference(trained))),
        ("buffers", of_kind(SymbolKind.BUFFER)),
        ("gradients", gradients),
        ("optimizer state", of_kind(SymbolKind.OPT_STATE)),
        ("activations kept for BCKWD", _kept(program)),
    )
    return [_row(kind, symbols, program) for kind, symbols in rows]


def _kept(program: Program) -> list[int]:
    """Return the symbols that FWD sections make, or the host, and BCKWD sections read."""
    called = [program.sections[index] for index in program.schedule]
    made = {index for kernel in program.host_kernels for index in kernel.outputs}
    made.update(i for s in called if s.type is SectionType.FWD for i in s.outputs)
    made.difference_update(states_of(program).all)
    read = {i for s in called if s.type is SectionType.BCKWD for i in s.inputs}
    return sorted(made & read)


def _row(kind: str, indices: Iterable[int], program: Program) -> MemoryRow:
    symbols = [program.symbols[index] for index in indices]
    shapes = ([size for size in s.shape or () if isinstance(size, int)] for s in symbols)
    return MemoryRow(
        kind=kind,
        tensors=len(symbols),
        elements=sum(map(prod, shapes)),
        bytes=sum(symbol.size for symbol in symbols),
    )
