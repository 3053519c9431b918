"""Emit: graphs and their plans become a `pef.Program`.

Nothing is decided here. Every choice stands in a plan; this file turns names into indices, cuts
the programs out of the graph and lays the weights out in segments. Weight data is referred to,
not copied: it moves once, from the model's memory map into the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import onnx_ir as ir

from pef.container import SegmentBuilder
from pef.program import (
    Alias,
    Argin,
    FusionGroup,
    HostKernel,
    NamedGraph,
    Operator,
    Port,
    Producer,
    Program,
    Requirements,
    Section,
    Variant,
)
from pef.states import ARGIN_VARIANTS
from pef.symbols import Allocation, Duration, Symbol, SymbolKind
from sambac.arch import Arch, device_numbers
from sambac.facts import Pack, StepFacts
from sambac.graph.constants import default_bytes, is_literal, tensor_bytes
from sambac.graph.origins import noted_origins
from sambac.planning.plans import (
    CostReport,
    LiveSets,
    PlannedGraph,
    PlannedSection,
    PlannedStage,
    ProgramPlan,
    SectionCost,
)
from sambac.planning.view import DataflowView, OpFacts, ValueRole
from sambac.section_program import SectionSource

from .section_programs import section_programs

_TENSOR_ALIGNMENT = 64
_GRAPH_ALIGNMENT = 8


def emit(plan: ProgramPlan, costs: CostReport, producer: Producer, arch: Arch) -> Program:
    """Return the program that `plan` describes for `arch`; its graphs must be in legal form."""
    weights = SegmentBuilder(1, "weights", _TENSOR_ALIGNMENT)
    symbols, allocations = _Symbols(plan, weights).build()
    index = {symbol.name: number for number, symbol in enumerate(symbols)}
    graphs = SegmentBuilder(0, "programs", _GRAPH_ALIGNMENT)
    sources = [SectionSource.of(graph.source.model, is_literal) for graph in plan.graphs]
    programs, variants = section_programs(sources, plan, graphs, index)
    sections = tuple(_sections(plan, costs, variants, index))
    steps = [*plan.lowered.steps.values()]
    opsets: dict[str, int] = {}
    for source in sources:  # a step that draws may be of an older opset than its evaluation
        opsets |= {name: max(v, opsets.get(name, 0)) for name, v in source.opsets.items()}
    return Program(
        producer=producer,
        requires=Requirements(tuple(sorted(opsets.items())), _features(plan, sections)),
        arch=arch.name,
        regions=tuple(
            replace(region, bandwidth=arch.speed(region.kind) or 0.0)
            for region in plan.memory.regions
        ),
        allocations=allocations,
        symbols=symbols,
        programs=programs,
        sections=sections,
        schedule=tuple(_schedule(plan)),
        graphs=tuple(_named_graphs(plan, costs.policy, index)),
        segments=(graphs.build(), weights.build()),
        argins=tuple(_argins(steps, index)),
        host_kernels=tuple(_host_kernels(steps, sections, index)),
        aliases=tuple(_aliases(plan.lowered.aliases, index)),
        warnings=tuple(_warnings(plan, costs)),
        device=device_numbers(arch),
    )


def _features(plan: ProgramPlan, sections: Iterable[Section]) -> tuple[str, ...]:
    """Return what a reader has to know, in alphabetical order."""
    chosen = any(each.zeros or each.nonzeros for item in sections for each in item.variants)
    return tuple(sorted({*plan.lowered.features, *((ARGIN_VARIANTS,) if chosen else ())}))


class _Symbols:
    """Makes the symbol table and the allocations; the data of weights goes into a segment."""

    def __init__(self, plan: ProgramPlan, weights: SegmentBuilder) -> None:
        self._plan = plan
        self._weights = weights
        self._positions = {name: at for at, name in enumerate(plan.lifetimes)}
        self._outputs = {name for graph in plan.graphs for name in graph.span.outputs}
        self._given = {name for graph in plan.graphs for name in graph.span.inputs}
        self._states = frozenset(plan.persistent.states)
        self._regions = frozenset(region.name for region in plan.persistent.shared)
        self._allocations: list[Allocation] = []
        self._allocated: dict[str, int] = {}

    def build(self) -> tuple[tuple[Symbol, ...], tuple[Allocation, ...]]:
        """Return the table."""
        content, origins = self._contents()
        related = self._relations()
        symbols = []
        for name, life in self._plan.lifetimes.items():
            facts = self._plan.values[name]
            tensor = content.get(name)
            as_bytes = default_bytes if facts.nbytes is None else tensor_bytes
            allocation, offset = self._place(name)
            symbols.append(
                Symbol(
                    name=name,
                    kind=self._kind(name, facts.role),
                    dtype=facts.dtype,
                    shape=facts.shape,
                    type=facts.type,
                    allocation=allocation,
                    offset=offset,
                    size=0 if facts.nbytes is None else facts.nbytes,
                    first_call=life.first,
                    last_call=life.last,
                    data=None if tensor is None else self._weights.add(as_bytes(tensor)),
                    origins=origins.get(name, ()),
                    duration=self._duration(name, facts.role),
                    declared=facts.declared,
                    **related.get(name, {}),
                )
            )
        return tuple(symbols), tuple(self._allocations)

    def _contents(self) -> tuple[dict[str, ir.TensorProtocol], dict[str, tuple[str, ...]]]:
        """Return the first content of symbols, and what derived weights were computed from."""
        content: dict[str, ir.TensorProtocol] = dict(self._plan.lowered.defaults)
        origins: dict[str, tuple[str, ...]] = {}
        for graph in self._plan.graphs:
            for name, value in graph.source.model.graph.initializers.items():
                if value.const_value is not None:
                    content[name] = value.const_value
                    origins[name] = tuple(sorted(noted_origins(value)))
        for name, state in self._plan.lowered.states.items():
            if state.content is not None:
                content[name] = state.content
        return content, origins

    def _relations(self) -> dict[str, dict[str, int]]:
        """Return the fields that refer to other symbols, by symbol, where there are any."""
        symbol, states = self._plan.persistent.symbol, self._plan.lowered.states
        steps = self._plan.lowered.steps.values()
        pairs = [
            # The gradient of an input is said by its port.
            *(
                ("parameter", symbol(g), n)
                for f in steps
                for n, g in f.gradients.items()
                if n in states
            ),
            *(("parameter", n, s.parameter) for n, s in states.items()),
            *(("pack", n, p.name) for p in self._plan.persistent.packs for n, _ in p.members),
        ]
        found: dict[str, dict[str, int]] = {}
        for field, name, other in pairs:
            if other in self._positions:
                found.setdefault(name, {})[field] = self._positions[other]
        return found

    def _duration(self, name: str, role: ValueRole) -> Duration:
        if name in self._states:
            return Duration.STATE
        return Duration.CONSTANT if role is ValueRole.WEIGHT else Duration.TRANSIENT

    def _place(self, name: str) -> tuple[int | None, int]:
        """Return the allocation of a symbol and its offset there; those of a pack share one."""
        pack, offset = self._plan.persistent.places.get(name, (None, 0))
        home = name if pack is None else pack.name
        if home not in self._allocated:
            placement = self._plan.memory.placements.get(home)
            if placement is None:
                return None, 0
            self._allocated[home] = len(self._allocations)
            label = "" if pack is None else pack.name
            self._allocations.append(
                Allocation(
                    placement.region,
                    placement.address,
                    placement.size,
                    label,
                    placement.spilled,
                    shared=label in self._regions,
                    reason=placement.reason,
                    cost=placement.cost,
                )
            )
        return self._allocated[home], offset

    def _kind(self, name: str, role: ValueRole) -> SymbolKind:
        states = self._plan.lowered.states
        if name in states:
            return states[name].kind
        for facts in self._plan.lowered.steps.values():
            kind = _training_kind(name, facts, self._plan.persistent.places)
            if kind is not None:
                return kind
        if states and role is ValueRole.WEIGHT:
            return SymbolKind.CONSTANT
        if name in self._given:
            return SymbolKind.INPUT
        if role is ValueRole.WEIGHT:
            return SymbolKind.WEIGHT
        return SymbolKind.OUTPUT if name in self._outputs else SymbolKind.ACTIVATION


def _training_kind(
    name: str, facts: StepFacts, packs: Mapping[str, tuple[Pack, int]]
) -> SymbolKind | None:
    """Return the kind of what only training programs have, None for all else."""
    if name in facts.states:
        return facts.states[name].kind
    if name in facts.gradients.values() or name in facts.reduced:
        return SymbolKind.GRADIENT
    if name in packs:
        first, _ = packs[name][0].members[0]
        return _training_kind(first, facts, {})
    return SymbolKind.ACTIVATION if name in facts.masks else None


def _sections(
    plan: ProgramPlan,
    costs: CostReport,
    variants: Iterable[tuple[Variant, ...]],
    index: Mapping[str, int],
) -> Iterator[Section]:
    """Yield the sections with names turned into symbol indices."""
    choices, taken = iter(variants), iter(costs.sections)
    for _, stage in plan.stages:
        for section, sets in zip(stage.sections.sections, stage.live_sets, strict=True):
            inputs = tuple(index[plan.persistent.symbol(name)] for name in sets.live_in)
            outputs = tuple(index[plan.persistent.symbol(name)] for name in sets.live_out)
            cost = next(taken)
            yield Section(
                name=section.name,
                type=section.type,
                variants=next(choices),
                inputs=inputs,
                weights=tuple(index[name] for name in sets.weights),
                outputs=outputs,
                groups=tuple(_groups(stage, section, sets, cost)),
                estimate=cost.estimate,
                in_place=_in_place(inputs, outputs),
            )


def _groups(
    stage: PlannedStage, section: PlannedSection, sets: LiveSets, cost: SectionCost
) -> Iterator[FusionGroup]:
    node = {op: position for position, op in enumerate(sets.ops)}
    for group in (stage.fusion.groups[number] for number in section.groups):
        facts = [stage.view.ops[op] for op in group.ops]
        yield FusionGroup(
            group.name,
            tuple(
                Operator(
                    op.name,
                    op.op_type,
                    node[op.name],
                    op.flops,
                    cost.pcus.get(op.name, 0),
                    _declared(stage.view, op),
                )
                for op in facts
            ),
        )


def _declared(view: DataflowView, op: OpFacts) -> tuple[int, ...]:
    """Return the types that a model has results of `op` in, where those of the host are wider."""
    types = tuple(view.values[value].declared for value in op.outputs)
    return types if any(types) else ()


def _in_place(inputs: Sequence[int], outputs: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Pair the positions of what a section both reads and overwrites."""
    read_at = {symbol: position for position, symbol in enumerate(inputs)}
    return tuple(
        (read_at[symbol], position) for position, symbol in enumerate(outputs) if symbol in read_at
    )


def _schedule(plan: ProgramPlan) -> Iterator[int]:
    first = 0
    for _, stage in plan.stages:
        yield from (first + section for section in stage.sections.schedule)
        first += len(stage.sections.sections)


def _named_graphs(
    plan: ProgramPlan, policy: Sequence[float], index: Mapping[str, int]
) -> Iterator[NamedGraph]:
    """Yield the signatures: public names, the symbols behind them, and their gradients.

    `policy` are the seconds of graphs by the policy, if regions were chosen by cost.
    """
    symbol = plan.persistent.symbol
    for graph, seconds in zip(plan.graphs, policy or [0.0] * len(plan.graphs), strict=True):
        source = graph.source
        facts = plan.lowered.steps.get(source.name)
        gradients, seeds = (facts.gradients, facts.seeds) if facts else ({}, {})
        yield NamedGraph(
            name=source.name,
            inputs=tuple(
                Port(
                    name,
                    index[value],
                    index[symbol(gradients[value])] if value in gradients else None,
                )
                for name, value in source.inputs.items()
            ),
            outputs=tuple(
                Port(name, index[symbol(value)], index[seeds[name]] if name in seeds else None)
                for name, value in source.outputs.items()
            ),
            first_call=graph.span.first_call,
            calls=graph.span.calls,
            model=source.of,
            role=source.role,
            policy_latency=seconds,
            chip_calls=graph.chip_calls,
            stage_calls=tuple(_stage_calls(graph)),
        )


def _stage_calls(graph: PlannedGraph) -> Iterator[int]:
    """Yield the calls with which a stage begins behind one of the same type of sections."""
    kinds = [
        stage.sections.sections[n].type for stage in graph.stages for n in stage.sections.schedule
    ]
    for start in accumulate(len(stage.calls) for stage in graph.stages[:-1]):
        if kinds[start] is kinds[start - 1]:
            yield graph.first_call + start


def _argins(steps: Iterable[StepFacts], index: Mapping[str, int]) -> Iterator[Argin]:
    for facts in steps:
        for argin in facts.argins:
            content = facts.states[argin.symbol].content
            assert content is not None
            default = float(content.numpy())
            yield Argin(argin.name, index[argin.symbol], default, argin.group, argin.option)


def _host_kernels(
    steps: Iterable[StepFacts], sections: Sequence[Section], index: Mapping[str, int]
) -> Iterator[HostKernel]:
    """Yield the steps that make masks, each before the first section that reads its mask."""
    for name, mask in (item for facts in steps for item in facts.masks.items()):
        symbol = index.get(name)
        reader = next((at for at, s in enumerate(sections) if symbol in s.inputs), None)
        if symbol is not None and reader is not None:
            settings = json.dumps({"site": mask.site})
            arguments = (index[mask.rate], index[mask.seed])
            yield HostKernel("dropout_mask", reader, arguments, (symbol,), settings)


def _aliases(aliases: Mapping[str, str], index: Mapping[str, int]) -> Iterator[Alias]:
    for name, target in sorted(aliases.items()):
        if target in index:  # a small constant is no symbol
            yield Alias(name, index[target])


def _warnings(plan: ProgramPlan, costs: CostReport) -> Iterator[str]:
    yield from plan.lowered.warnings
    for _, stage in plan.stages:
        yield from stage.sections.warnings
    yield from costs.warnings
