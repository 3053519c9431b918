"""What goes into the planning of a program, and the plans that come out, in the order of planners.

    graphs to plan        NamedModel, LoweredGraphs
    plans of a stage      FusionPlan, SectionPlan, LiveSets
    of all its graphs     PlannedStage, PlannedGraph
    of memory             Lifetime, PersistentBuffers, Buffer, MemoryPlan
    of the whole          ProgramPlan, CostReport, SectionCost

All are frozen. Plans are keyed by names, and know the graph as the view that planners have of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from pef.costs import Estimate
from pef.graphs import callers
from pef.program import GraphRole, SectionType
from pef.report.notebook import table_html
from pef.symbols import PlacementReason, Region, RegionKind
from pef.text import Table, human_bytes, human_time, name_text, plural
from sambac.facts import Pack, Record, State, StepFacts

from .view import DataflowView, Lifetime, SymbolGraph, ValueFacts


@dataclass(frozen=True)
class NamedModel:
    """A graph under its name; `inputs` and `outputs` map public names to its values, in order.

    `of` is the name of its model, empty where that is compiled alone, `role` what it does there.
    """

    name: str
    model: ir.Model
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    of: str = ""
    role: GraphRole = GraphRole.INFERENCE


def named_model(
    name: str,
    model: ir.Model,
    inputs: Sequence[str],
    outputs: Sequence[str],
    beside: int,
) -> NamedModel:
    """Return `model` with public names for its inputs and outputs, in its order.

    The last inputs, so many as `beside` says, are states and have none.
    """
    given = model.graph.inputs[: len(model.graph.inputs) - beside]
    return NamedModel(name, model, _ports(inputs, given), _ports(outputs, model.graph.outputs))


def _ports(names: Sequence[str], values: Sequence[ir.Value]) -> dict[str, str]:
    return dict(zip(names, (str(value.name) for value in values), strict=True))


@dataclass(frozen=True)
class LoweredGraphs:
    """What is to be planned: graphs in their final form, in the order of the schedule.

    `defaults` is the content of inputs that may be left out. `states`, by graph input, live in
    memory from run to run; `aliases` maps further names to them. `steps` has the facts of training
    steps, by graph.
    `shared` maps inputs and outputs to regions of memory by name (see `placement.shared_regions`),
    `namesakes` names of a first model to what others call so too. `features` are what a runtime has
    to know to run the program, `warnings` sentences for users, `record` what else is said of
    the compilation.
    """

    graphs: tuple[NamedModel, ...]
    defaults: Mapping[str, ir.TensorProtocol]
    states: Mapping[str, State] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, StepFacts] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    record: Record = field(default_factory=Record)
    shared: Mapping[str, str] = field(default_factory=dict)
    namesakes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @property
    def callers(self) -> tuple[tuple[str, ...], ...]:
        """How each graph is called in front of its inputs and outputs."""
        return tuple(callers(graph.name, graph.of) for graph in self.graphs)


@dataclass(frozen=True, slots=True)
class Group:
    """A fusion group: operators (in topological order) mapped together as one kernel."""

    name: str
    ops: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True, slots=True)
class FusionPlan:
    """Every operator that is not cloned stands in exactly one group; groups are convex."""

    groups: tuple[Group, ...]

    def __repr__(self) -> str:
        """Return what it is in a line."""
        ops = sum(len(group.ops) for group in self.groups)
        return f"<FusionPlan: {plural(len(self.groups), 'group')} of {plural(ops, 'operator')}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = [(g.name, str(len(g.ops)), g.rule or "-", " ".join(g.ops)) for g in self.groups]
        table = Table(("group", "operators", "rule", "which"), rows, ("operators",))
        return table_html("Fusion groups", table)

    def ops_of(self, groups: Iterable[int]) -> list[str]:
        """Return the operators of some groups, by number."""
        return [op for group in groups for op in self.groups[group].ops]


@dataclass(frozen=True, slots=True)
class PlannedSection:
    """A section: indices into `FusionPlan.groups`, in topological order."""

    name: str
    type: SectionType
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SectionPlan:
    """Sections in an order in which each reads only what earlier ones wrote.

    `schedule` lists section indices. `traffic` is the number of bytes crossing between sections,
    `lower_bound` what no cut into this many sections can go below, `warnings` what a user should
    know (a section over a limit, with numbers).
    """

    sections: tuple[PlannedSection, ...]
    schedule: tuple[int, ...]
    traffic: int
    lower_bound: int
    warnings: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Return what it is in a line."""
        sections, calls = plural(len(self.sections), "section"), plural(len(self.schedule), "call")
        return f"<SectionPlan: {sections}, {calls}, traffic of {human_bytes(self.traffic)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = [(each.name, each.type.name, str(len(each.groups))) for each in self.sections]
        bound = human_bytes(self.lower_bound)
        title = f"Sections; {human_bytes(self.traffic)} between them, at least {bound}"
        return table_html(title, Table(("section", "type", "groups"), rows, ("groups",)))


@dataclass(frozen=True, slots=True)
class LiveSets:
    """What is live where one section begins and ends, as value names.

    `ops` are all operators it runs in topological order, cloned ones included; `live_in` come
    from the caller or other sections, `weights` have content in the model, `live_out` are read by
    other sections or are outputs of the model.
    """

    ops: tuple[str, ...]
    live_in: tuple[str, ...]
    weights: tuple[str, ...]
    live_out: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GraphCalls:
    """What a caller gives to and takes from a named graph: values, and the calls of the graph."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_call: int
    calls: int

    @property
    def end(self) -> int:
        """The position behind the last call."""
        return self.first_call + self.calls


@dataclass(frozen=True)
class PlannedStage:
    """A stretch of the schedule and what the planners decided about it."""

    view: DataflowView
    fusion: FusionPlan
    sections: SectionPlan
    live_sets: tuple[LiveSets, ...]

    @property
    def calls(self) -> tuple[LiveSets, ...]:
        """The live sets of the sections in the order in which they run."""
        return tuple(self.live_sets[section] for section in self.sections.schedule)


@dataclass(frozen=True)
class PlannedGraph:
    """A named graph, its stages in order, and where its stretch of the schedule begins.

    At the stages of `chips` the next chip of a pipeline begins.
    """

    source: NamedModel
    stages: tuple[PlannedStage, ...]
    first_call: int
    chips: tuple[int, ...] = ()

    @property
    def chip_calls(self) -> tuple[int, ...]:
        """The calls with which chips begin, after the first one."""
        lengths = [len(stage.calls) for stage in self.stages]
        return tuple(self.first_call + sum(lengths[:number]) for number in self.chips)

    @property
    def calls(self) -> tuple[LiveSets, ...]:
        """The live sets of the sections in the order in which they run."""
        return tuple(sets for stage in self.stages for sets in stage.calls)

    @property
    def span(self) -> GraphCalls:
        """What a caller gives and takes, and the stretch of the schedule."""
        inputs, outputs = self.source.inputs.values(), self.source.outputs.values()
        return GraphCalls(tuple(inputs), tuple(outputs), self.first_call, len(self.calls))


@dataclass(frozen=True)
class PersistentBuffers:
    """What lives in memory beyond the flow of values.

    `states` live from run to run, flat ones over packs of them included, and so does what lies in
    `shared`, regions of memory whose members are all of it. `updates` maps a value to
    the symbol that it overwrites. `kept` are values that live to the end of the graph that makes
    them.
    """

    states: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    packs: tuple[Pack, ...] = ()
    shared: tuple[Pack, ...] = ()

    @cached_property
    def places(self) -> Mapping[str, tuple[Pack, int]]:
        """The pack or shared region that a symbol is part of, by symbol, and the offset there."""
        return {
            name: (pack, offset)
            for pack in (*self.packs, *self.shared)
            for name, offset in ((pack.name, 0), *pack.members)
        }

    def buffer(self, value: str) -> str:
        """Return the name of the buffer that `value` lies in."""
        symbol = self.symbol(value)
        return self.places[symbol][0].name if symbol in self.places else symbol

    def symbol(self, value: str) -> str:
        """Return the symbol in whose memory `value` is written."""
        while value in self.updates:
            value = self.updates[value]
        return value


@dataclass(frozen=True, slots=True)
class Buffer:
    """A request for memory: `size` bytes alive over the calls `first` to `last`, inclusive.

    `persistent` buffers live through the whole program and share with nobody. `region` is where
    the user wants it, or None. `traffic` is how many bytes move to and from it in one run of the
    schedule. `weight` buffers are the last to leave HBM.
    """

    name: str
    size: int
    first: int
    last: int
    persistent: bool = False
    weight: bool = False
    region: RegionKind | None = None
    traffic: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a buffer lies; `spilled` if that is only because HBM is full.

    `reason` and `cost` say why there, and what a slower region costs, as `pef.Allocation` has them.
    """

    region: RegionKind
    address: int
    size: int
    spilled: bool = False
    reason: PlacementReason = PlacementReason.UNSTATED
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """A placement for every buffer, by name, and the use of each region of the device.

    `policy` has the regions that the policy would have chosen for those that lie elsewhere, where
    costs decided; None where nothing was decided by cost.
    """

    placements: dict[str, Placement]
    regions: tuple[Region, ...]
    policy: Mapping[str, RegionKind] | None = None

    def __repr__(self) -> str:
        """Return what it is in a line."""
        used = (f"{each.kind.name} {human_bytes(each.used)}" for each in self.regions)
        return f"<MemoryPlan: {plural(len(self.placements), 'buffer')}, {', '.join(used)}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        ordered = sorted(self.placements.items(), key=lambda item: (-item[1].size, item[0]))
        rows = [
            (name, place.region.name, f"{place.address:#x}", human_bytes(place.size))
            for name, place in ordered
        ]
        table = Table(("buffer", "region", "address", "size"), rows, ("address", "size"))
        return table_html(repr(self).strip("<>"), table)


@dataclass(frozen=True)
class ProgramPlan:
    """Everything the planners decided about one program.

    `graphs` are those of `lowered`, in order; `values` are the facts of all values of all graphs.
    """

    lowered: LoweredGraphs
    graphs: tuple[PlannedGraph, ...]
    values: Mapping[str, ValueFacts]
    symbols: SymbolGraph
    lifetimes: Mapping[str, Lifetime]
    persistent: PersistentBuffers
    memory: MemoryPlan

    def __repr__(self) -> str:
        """Return what it is in a line."""
        sections = sum(len(stage.sections.sections) for _, stage in self.stages)
        graphs = ", ".join(name_text(graph.source.name) for graph in self.graphs)
        return f"<ProgramPlan of {graphs}: {plural(sections, 'section')}, {self.memory!r}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        rows = []
        for number, (graph, stage) in enumerate(self.stages):
            counts = number, len(stage.fusion.groups), len(stage.sections.sections)
            traffic = human_bytes(stage.sections.traffic)
            rows.append((graph.source.name, *map(str, counts), traffic))
        headers = ("graph", "stage", "groups", "sections", "traffic")
        stages = table_html("Stages", Table(headers, rows, headers[1:]))
        return stages + self.memory._repr_html_()

    @property
    def stages(self) -> Iterator[tuple[PlannedGraph, PlannedStage]]:
        """All stages in the order of the schedule."""
        return ((graph, stage) for graph in self.graphs for stage in graph.stages)


@dataclass(frozen=True, slots=True)
class SectionCost:
    """What a section takes; `pcus` is how it divides compute units among operators that compute."""

    estimate: Estimate
    pcus: Mapping[str, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CostReport:
    """What each section of a program takes, in order, and what users should know of that.

    `policy` are the seconds that each graph would take by the policy for regions; empty where
    nothing was decided by cost.
    """

    sections: tuple[SectionCost, ...]
    warnings: tuple[str, ...] = ()
    policy: tuple[float, ...] = ()

    def __repr__(self) -> str:
        """Return what it is in a line; the time is that of one call of each section."""
        seconds = sum(cost.estimate.latency for cost in self.sections)
        told = f"{plural(len(self.sections), 'section')}, {human_time(1e6 * seconds)} modelled"
        return f"<CostReport: {told}, {plural(len(self.warnings), 'warning')}>"
