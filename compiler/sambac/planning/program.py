"""The planners in order, each followed by its checker, for all stages of all graphs.

    for each stage of each graph    fusion -> sections -> live_sets
    for the whole schedule          lifetimes -> memory

A model for inference is one stage. A training step is cut into stages, see `stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pef.program import GraphRole, SectionType
from pef.symbols import RegionKind
from pef.wording import listed
from sambac.arch import Arch, load_device
from sambac.errors import require
from sambac.facts import StepFacts
from sambac.options import CompileOptions

from .check_fusion import check_fusion
from .check_memory import check_memory, check_updates
from .check_sections import check_sections
from .from_model import VIEWS, view_of
from .fusion import plan_fusion
from .liveness import lifetimes_of, live_sets_of, memory_requests, symbol_graph
from .memory import plan_memory
from .placement import (
    Names,
    check_constraints,
    names_of,
    ports_in_host,
    regions_by_hand,
    shared_regions,
)
from .plans import (
    Buffer,
    FusionPlan,
    LoweredGraphs,
    NamedModel,
    PersistentBuffers,
    PlannedGraph,
    PlannedStage,
    ProgramPlan,
)
from .region_times import RegionTimes, traffic_graph
from .resources import scheduled_demands
from .rules import own_rules
from .sections import SectionRequest, plan_sections, require_resident
from .stages import Buckets, chip_stages, idle_breaks, plan_buckets, split, with_reductions
from .view import DataflowView, Lifetime, OpFacts, ValueFacts, ValueRole


def plan_program(
    lowered: LoweredGraphs, options: CompileOptions, report: Callable[[str], None]
) -> ProgramPlan:
    """Return the plan of all graphs; `report` is called with the name of each step.

    Raises `CompileError` for what does not fit the device or the options, `InternalError` where
    a checker rejects a plan.
    """
    arch = load_device(options.arch, options.num_tiles, options.n_chips or 1)
    report("plan sections")
    views = _views(lowered, options)
    values = {name: facts for view in reversed(views) for name, facts in view.values.items()}
    persistent = _persistent(lowered)
    if lowered.shared:
        shared = shared_regions(lowered.shared, lowered.graphs, values, lowered.callers)
        persistent = replace(persistent, shared=shared)
    graphs = _plan_graphs(lowered, views, persistent, options, arch)
    report("plan memory")
    live_sets = [sets for graph in graphs for sets in graph.calls]
    symbols = symbol_graph(live_sets, [graph.span for graph in graphs], persistent)
    lifetimes = lifetimes_of(symbols, values, persistent, len(live_sets))
    constraints: Mapping[str, RegionKind] = {}
    if options.memory or options.io_host_memory:
        names = _names(graphs, lowered, lifetimes, persistent)
        constraints = _constraints(options, names, values, persistent, lowered.namesakes)
    requests = memory_requests(values, lifetimes, len(live_sets), persistent, in_region=constraints)
    memory = plan_memory(
        requests, arch.capacities, lambda: _region_times(graphs, arch, persistent, requests)
    )
    require("plan memory", check_memory(requests, memory, arch.capacities))
    idle = (*_idle_breaks(graphs, options), *_idle_rules(graphs, options))
    lowered = replace(lowered, warnings=(*lowered.warnings, *idle))
    return ProgramPlan(lowered, tuple(graphs), values, symbols, lifetimes, persistent, memory)


def _plan_graphs(
    lowered: LoweredGraphs,
    views: Sequence[DataflowView],
    persistent: PersistentBuffers,
    options: CompileOptions,
    arch: Arch,
) -> list[PlannedGraph]:
    """Return the sections of each graph, whose calls follow those of the graph before it."""
    graphs: list[PlannedGraph] = []
    for source, view in zip(lowered.graphs, views, strict=True):
        facts = lowered.steps.get(source.name)
        stages = _plan_stages(source, view, facts, options, arch)
        chips: tuple[int, ...] = ()
        if options.chip_breaks and facts is None:
            chips = chip_stages(view, _breaks(options), options.chip_breaks)
        first_call = graphs[-1].span.end if graphs else 0
        graph = PlannedGraph(source, stages, first_call, chips)
        if persistent.updates:
            require("plan sections", check_updates(view, graph.calls, persistent))
        graphs.append(graph)
    if options.mapping == "spatial":
        all_stages = (stage for graph in graphs for stage in graph.stages)
        require_resident(((s.view, s.fusion, s.sections) for s in all_stages), arch)
    return graphs


def _views(lowered: LoweredGraphs, options: CompileOptions) -> list[DataflowView]:
    """Return what planners know of each graph."""
    alone = options.level == "O0"
    return [
        view_of(graph.model, states=lowered.states, clone_views=alone) for graph in lowered.graphs
    ]


def _plan_stages(
    source: NamedModel,
    view: DataflowView,
    facts: StepFacts | None,
    options: CompileOptions,
    arch: Arch,
) -> tuple[PlannedStage, ...]:
    """Return the stages of one graph, with reductions between those of a training step."""
    buckets = _buckets(view, facts, options)
    parts = _stages(source, view, facts, buckets, _breaks(options))
    stages = [_plan_stage(part, prefix, options, arch) for part, prefix in parts]
    if buckets is not None:
        stages = with_reductions(stages, view, buckets, _prefix(source))
    return tuple(stages)


def _breaks(options: CompileOptions) -> tuple[str, ...]:
    """Return where sections begin: a chip begins with a section of its own."""
    return (*options.section_breaks, *options.chip_breaks)


def _idle_breaks(graphs: Iterable[PlannedGraph], options: CompileOptions) -> tuple[str, ...]:
    """Return a sentence for each break that means no operator of any graph."""
    asked = {name: getattr(options, name) for name in ("section_breaks", "chip_breaks")}
    return idle_breaks((stage.view for graph in graphs for stage in graph.stages), asked)


def _idle_rules(graphs: Iterable[PlannedGraph], options: CompileOptions) -> Iterator[str]:
    """Yield a sentence if the user's file has rules that fuse no operators of any graph."""
    if options.fusion_rules is None:
        return
    stages = (stage for graph in graphs for stage in graph.stages)
    used = {group.rule for stage in stages for group in stage.fusion.groups}
    idle = [f"'{rule.name}'" for rule in own_rules(options.fusion_rules) if rule.name not in used]
    if idle:
        names = listed(idle, separator=", ")
        yield (
            f"rules of {Path(options.fusion_rules).name} fuse nothing here, as no operators match "
            "them, or they cannot be one kernel, or rules of a higher priority match the same: "
            f"{names}"
        )


def _region_times(
    graphs: Iterable[PlannedGraph],
    arch: Arch,
    persistent: PersistentBuffers,
    requests: Iterable[Buffer],
) -> RegionTimes:
    """Return what runs take with buffers in one region or another."""
    stages = (stage for graph in graphs for stage in graph.stages)
    demands = scheduled_demands(stages, arch, persistent.states)
    known = {buffer.name for buffer in requests}
    return RegionTimes.of(traffic_graph(demands, persistent.buffer, known), arch)


def _buckets(
    view: DataflowView, facts: StepFacts | None, options: CompileOptions
) -> Buckets | None:
    """Return the gradients that are reduced; who asks for a number of sections gets no more."""
    if facts is None:
        return None
    return plan_buckets(view, facts, cut=options.mapping == "section" and options.sections is None)


def _prefix(graph: NamedModel) -> str:
    """Return what the names of all sections of a model that trains beside others begin with."""
    return f"{graph.of}/" if graph.of else ""


def _stages(
    graph: NamedModel,
    view: DataflowView,
    facts: StepFacts | None,
    buckets: Buckets | None,
    breaks: Sequence[str],
) -> list[tuple[DataflowView, str]]:
    """Return the views to plan one by one, each with how its sections are called."""
    if facts is not None:
        stages = split(view, facts.stages, buckets, breaks)
        kinds = [next(iter(stage.ops.values())).section_type.name.lower() for stage in stages]
        return _numbered(stages, [_prefix(graph) + kind for kind in kinds])
    infers = graph.role is GraphRole.INFERENCE
    forward = dict.fromkeys(view.outputs, SectionType.FWD)
    stages = (view,) if infers and not breaks else split(view, forward, breaks=breaks)
    return _numbered(stages, [(graph.of or "section") if infers else graph.name] * len(stages))


def _numbered(
    stages: Sequence[DataflowView], names: Sequence[str]
) -> list[tuple[DataflowView, str]]:
    """Return stages with their names, which have numbers where several are called alike."""
    return [
        (stage, name if names.count(name) == 1 else f"{name}_{names[:at].count(name)}")
        for at, (name, stage) in enumerate(zip(names, stages, strict=True))
    ]


def _plan_stage(
    view: DataflowView, prefix: str, options: CompileOptions, arch: Arch
) -> PlannedStage:
    view, fusion = _fused(view, options, arch)
    require("plan fusion", check_fusion(view, fusion))
    request = SectionRequest(options.level, options.mapping, options.sections, prefix)
    sections = plan_sections(view, fusion, arch, request)
    live_sets = live_sets_of(view, fusion, sections)
    require("plan sections", check_sections(view, fusion, sections, live_sets, arch))
    return PlannedStage(view, fusion, sections, live_sets)


def _fused(
    view: DataflowView, options: CompileOptions, arch: Arch
) -> tuple[DataflowView, FusionPlan]:
    """Return the fusion groups of a stage, and its view without views that nothing fuses with.

    What only changes a shape moves nothing: where the chip has no room to keep it with others, each
    reader has a copy of it, as at O0, instead of a section that would pass all bytes on.
    """
    at_least = options.sections or 0
    while True:
        fusion = plan_fusion(view, arch, options.level, options.fusion_rules, at_least=at_least)
        lone = _lone_views(view, fusion) if options.sections is None else frozenset()
        if not lone or len(lone) == len(fusion.groups):
            return view, fusion
        ops = {n: replace(op, cloned=True) if n in lone else op for n, op in view.ops.items()}
        view = replace(view, ops=ops)


def _lone_views(view: DataflowView, fusion: FusionPlan) -> frozenset[str]:
    """Return operators in groups of their own that only change the shape of what others made."""
    returned = set(view.outputs)

    def is_lone(op: OpFacts) -> bool:
        return (
            op.domain == ""
            and op.op_type in VIEWS
            and [view.values[name].role for name in op.inputs] == [ValueRole.ACTIVATION]
            and view.values[op.outputs[0]].nbytes is not None
            and returned.isdisjoint(op.outputs)
        )

    alone = (view.ops[group.ops[0]] for group in fusion.groups if len(group.ops) == 1)
    return frozenset(op.name for op in alone if is_lone(op))


def _persistent(lowered: LoweredGraphs) -> PersistentBuffers:
    """Return what lives in memory beyond the flow of values."""
    steps = [*lowered.steps.values()]
    packs = tuple(pack for facts in steps for pack in facts.packs)
    flat = [pack.name for pack in packs if pack.members[0][0] in lowered.states]
    return PersistentBuffers(
        states=(*lowered.states, *flat),
        updates={value: symbol for facts in steps for value, symbol in facts.updates.items()},
        kept=frozenset(
            name for facts in steps for name in (*facts.gradients.values(), *facts.reduced)
        ),
        packs=packs,
    )


def _constraints(
    options: CompileOptions,
    names: Names,
    values: Mapping[str, ValueFacts],
    persistent: PersistentBuffers,
    namesakes: Mapping[str, Sequence[str]],
) -> Mapping[str, RegionKind]:
    """Return the region of each symbol that the user wants somewhere."""
    check_constraints(options.memory, names, values, persistent, namesakes)
    ports = ports_in_host(names, values, persistent) if options.io_host_memory else {}
    return ports | regions_by_hand(options.memory, names)


def _names(
    planned: Iterable[PlannedGraph],
    lowered: LoweredGraphs,
    lifetimes: Mapping[str, Lifetime],
    persistent: PersistentBuffers,
) -> Names:
    """Return what users' names mean."""
    inner = (
        (called, persistent.symbol(value))
        for graph, called in zip(planned, lowered.callers, strict=True)
        for live in (graph.calls if graph.source.of else ())
        for value in (*live.live_in, *live.weights, *live.live_out)
    )
    graphs = (
        (
            called,
            [
                (public, persistent.symbol(value))
                for public, value in (*graph.inputs.items(), *graph.outputs.items())
            ],
        )
        for graph, called in zip(lowered.graphs, lowered.callers, strict=True)
    )
    states = ((alias, name) for alias, name in lowered.aliases.items() if name in lifetimes)
    return names_of(graphs, (*((name, name) for name in lifetimes), *states), inner)
