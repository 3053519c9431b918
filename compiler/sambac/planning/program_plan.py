"""What goes into the planning of a whole program, and what comes out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from pef.graphs import callers
from pef.program import GraphRole
from sambac.facts import State, StepFacts

from .buffers import GraphCalls, Lifetime, PersistentBuffers
from .liveness import SymbolGraph
from .plans import FusionPlan, LiveSets, MemoryPlan, SectionPlan
from .view import DataflowView, ValueFacts


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
    beside: int = 0,
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
    `shared` maps inputs and outputs to regions of memory by name (see `planning.shared`).
    `features` are what a runtime has to know to run the program, `warnings` sentences for users,
    and `applied` says what was done to the numbers of how many operators.
    """

    graphs: tuple[NamedModel, ...]
    defaults: Mapping[str, ir.TensorProtocol]
    states: Mapping[str, State] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    steps: Mapping[str, StepFacts] = field(default_factory=dict)
    features: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    applied: tuple[str, ...] = ()
    shared: Mapping[str, str] = field(default_factory=dict)

    @property
    def callers(self) -> tuple[tuple[str, ...], ...]:
        """How each graph is called in front of its inputs and outputs."""
        return tuple(callers(graph.name, graph.of) for graph in self.graphs)


@dataclass(frozen=True)
class PlannedStage:
    """A stretch of the schedule and what the planners decided about it."""

    view: DataflowView
    fusion: FusionPlan
    sections: SectionPlan
    live_sets: tuple[LiveSets, ...]

    @property
    def calls(self) -> tuple[LiveSets, ...]:
        """The live_sets of the sections in the order in which they run."""
        return tuple(self.live_sets[section] for section in self.sections.schedule)


@dataclass(frozen=True)
class PlannedGraph:
    """A named graph, its stages in order, and where its stretch of the schedule begins."""

    source: NamedModel
    stages: tuple[PlannedStage, ...]
    first_call: int

    @property
    def calls(self) -> tuple[LiveSets, ...]:
        """The live_sets of the sections in the order in which they run."""
        return tuple(sets for stage in self.stages for sets in stage.calls)

    @property
    def span(self) -> GraphCalls:
        """What a caller gives and takes, and the stretch of the schedule."""
        inputs, outputs = self.source.inputs.values(), self.source.outputs.values()
        return GraphCalls(tuple(inputs), tuple(outputs), self.first_call, len(self.calls))


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

    @property
    def stages(self) -> Iterator[tuple[PlannedGraph, PlannedStage]]:
        """All stages in the order of the schedule."""
        return ((graph, stage) for graph in self.graphs for stage in graph.stages)
