"""Emit: the graph and its plans become a `pef.Program`.

Nothing is decided here. Every choice stands in a plan; this file turns names into indices, cuts
the programs out of the graph and lays the weights out in segments. Weight data is referred to,
not copied: it moves once, from the model's memory map into the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from pef import dtypes
from pef.program import (
    Allocation,
    CallForm,
    DataRef,
    FusionGroup,
    NamedGraph,
    Operator,
    Piece,
    Port,
    Producer,
    Program,
    Requirements,
    Section,
    SectionProgram,
    Segment,
    Symbol,
    SymbolKind,
    Variant,
)

from .frontend import Signature
from .graph.constants import is_literal
from .graph.origins import noted_origins
from .planning.lifetimes import Lifetime
from .planning.plans import Border, CostReport, FusionPlan, MemoryPlan, SectionPlan
from .planning.view import DataflowView, ValueRole
from .section_program import FormalProgram, SectionSource
from .tensor_bytes import default_bytes, tensor_bytes

_TENSOR_ALIGNMENT = 64
_GRAPH_ALIGNMENT = 8
PROGRAM_SEGMENT = 0
WEIGHT_SEGMENT = 1


@dataclass(frozen=True)
class Plans:
    """Everything the planners decided about one model."""

    view: DataflowView
    fusion: FusionPlan
    sections: SectionPlan
    borders: tuple[Border, ...]
    lifetimes: Mapping[str, Lifetime]
    memory: MemoryPlan
    costs: CostReport


def emit(
    model: ir.Model, signature: Signature, plans: Plans, producer: Producer, arch: str
) -> Program:
    """Return the program for `model`, which must be in legal form and the one `plans` speak of."""
    weights = _SegmentBuilder("weights", _TENSOR_ALIGNMENT)
    symbols, allocations = _symbols(model, signature, plans, weights)
    index = {symbol.name: number for number, symbol in enumerate(symbols)}
    graphs = _SegmentBuilder("programs", _GRAPH_ALIGNMENT)
    source = SectionSource.of(model, is_literal)
    programs, program_of = _programs(source, plans, graphs)
    return Program(
        producer=producer,
        requires=Requirements(opsets=tuple(sorted(source.opsets.items()))),
        arch=arch,
        regions=plans.memory.regions,
        allocations=allocations,
        symbols=symbols,
        programs=programs,
        sections=tuple(_sections(plans, program_of, index)),
        schedule=plans.sections.schedule,
        graphs=(_main_graph(signature, plans, index),),
        segments=(graphs.build(), weights.build()),
        warnings=plans.sections.warnings + plans.costs.warnings,
    )


class _SegmentBuilder:
    """Lays pieces of data out one after the other, each on an aligned offset."""

    def __init__(self, name: str, alignment: int) -> None:
        self._name = name
        self._alignment = alignment
        self._pieces: list[Piece] = []
        self._size = 0

    def add(self, segment: int, data: bytes | memoryview) -> DataRef:
        """Append `data` and return where it lies in segment number `segment`."""
        offset = -(-self._size // self._alignment) * self._alignment
        size = len(data)
        if size:
            self._pieces.append(Piece(offset, data))
            self._size = offset + size
        return DataRef(segment, offset, size)

    def build(self) -> Segment:
        """Return the segment with everything added so far."""
        return Segment(self._name, self._size, tuple(self._pieces))


def _symbols(
    model: ir.Model, signature: Signature, plans: Plans, weights: _SegmentBuilder
) -> tuple[tuple[Symbol, ...], tuple[Allocation, ...]]:
    """Return the symbol table and the allocations; the data of weights goes into `weights`."""
    content: dict[str, ir.TensorProtocol] = dict(signature.defaults)
    origins: dict[str, tuple[str, ...]] = {}
    for name, value in model.graph.initializers.items():
        if value.const_value is not None:
            content[name] = value.const_value
            origins[name] = tuple(sorted(noted_origins(value)))
    outputs = frozenset(plans.view.outputs)
    symbols: list[Symbol] = []
    allocations: list[Allocation] = []
    for name, life in plans.lifetimes.items():
        facts = plans.view.values[name]
        tensor = content.get(name)
        as_bytes = default_bytes if facts.nbytes is None else tensor_bytes
        placement = plans.memory.placements.get(name)
        if placement is not None:
            allocations.append(Allocation(placement.region, placement.address, placement.size))
        symbols.append(
            Symbol(
                name=name,
                kind=_kind(name, facts.role, outputs),
                dtype=facts.dtype,
                shape=facts.shape,
                type=facts.type,
                allocation=None if placement is None else len(allocations) - 1,
                size=0 if facts.nbytes is None else facts.nbytes,
                first_call=life.first,
                last_call=life.last,
                data=None if tensor is None else weights.add(WEIGHT_SEGMENT, as_bytes(tensor)),
                origins=origins.get(name, ()),
            )
        )
    return tuple(symbols), tuple(allocations)


def _kind(name: str, role: ValueRole, outputs: frozenset[str]) -> SymbolKind:
    if role is ValueRole.ACTIVATION:
        return SymbolKind.OUTPUT if name in outputs else SymbolKind.ACTIVATION
    return SymbolKind.INPUT if role is ValueRole.INPUT else SymbolKind.WEIGHT


def _programs(
    source: SectionSource, plans: Plans, graphs: _SegmentBuilder
) -> tuple[tuple[SectionProgram, ...], list[int]]:
    """Return the distinct programs, and for each section the index of its program."""
    model_inputs = frozenset(plans.view.inputs)
    numbers: dict[tuple[FormalProgram, CallForm], int] = {}
    programs: list[SectionProgram] = []
    program_of: list[int] = []
    for border in plans.borders:
        formal = source.program(border)
        form = _call_form(border, plans.view, model_inputs)
        number = numbers.setdefault((formal, form), len(programs))
        if number == len(programs):
            ref = graphs.add(PROGRAM_SEGMENT, formal.graph)
            programs.append(
                SectionProgram(ref, formal.inputs, formal.weights, formal.outputs, form)
            )
        program_of.append(number)
    return tuple(programs), program_of


def _call_form(border: Border, view: DataflowView, inputs: frozenset[str]) -> CallForm:
    """Choose how the runtime calls a section from the types that cross its border."""

    def bindable(name: str) -> bool:
        return view.values[name].dtype not in (0, dtypes.STRING)

    crossing = (*border.inputs, *border.outputs)
    if not all(bindable(name) for name in border.inputs if name in inputs):
        return CallForm.HOST
    if any("map(" in view.values[name].type for name in crossing):
        return CallForm.HOST
    if not all(bindable(name) for name in crossing):
        return CallForm.VALUES
    return CallForm.BOUND


def _sections(
    plans: Plans, program_of: Sequence[int], index: Mapping[str, int]
) -> Iterable[Section]:
    """Yield the sections with names turned into symbol indices."""

    def indices(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(index[name] for name in names)

    ops = plans.view.ops
    fused = plans.fusion.groups
    parts = zip(
        plans.sections.sections, plans.borders, plans.costs.sections, program_of, strict=True
    )
    for section, border, estimate, program in parts:
        node = {op: position for position, op in enumerate(border.ops)}
        groups = tuple(
            FusionGroup(
                group.name, tuple(Operator(op, ops[op].op_type, node[op]) for op in group.ops)
            )
            for group in (fused[number] for number in section.groups)
        )
        yield Section(
            name=section.name,
            type=section.type,
            variants=(Variant(program),),
            inputs=indices(border.inputs),
            weights=indices(border.weights),
            outputs=indices(border.outputs),
            groups=groups,
            estimate=estimate,
        )


def _main_graph(signature: Signature, plans: Plans, index: Mapping[str, int]) -> NamedGraph:
    """Return the model's signature: its public names, and the symbols behind them."""

    def ports(public: Sequence[str], values: Sequence[str]) -> tuple[Port, ...]:
        pairs = zip(public, values, strict=True)
        return tuple(Port(name, index[value]) for name, value in pairs)

    return NamedGraph(
        name="main",
        inputs=ports(signature.inputs, plans.view.inputs),
        outputs=ports(signature.outputs, plans.view.outputs),
        first_call=0,
        calls=len(plans.sections.schedule),
    )
