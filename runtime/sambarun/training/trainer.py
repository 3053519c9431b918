"""Training steps: which sections one step runs, and the losses it gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

import pef
from pef import dtypes
from pef.arguments import some
from pef.graphs import graph_of, trained_models
from pef.stages import before, behind
from sambarun.arrays import Array
from sambarun.device.weights import static_shape
from sambarun.errors import INPUTS, NOT_TRAINING, RunError, require
from sambarun.execution.plan import Plan
from sambarun.execution.planner import Result
from sambarun.execution.workspace import Workspace
from sambarun.linking.schedule import Chosen, calls_of

from .classes import with_ranges

_Inputs = Mapping[str, object]
_BATCHES = some(INPUTS, "a dict of arrays by the names of inputs, or a list of these,")
_CLEAR = frozenset(before(pef.SectionType.FWD))
_UPDATE = frozenset(behind(pef.SectionType.BCKWD))


class Trainer:
    """Makes the training steps of one graph in one workspace."""

    def __init__(
        self, workspace: Workspace, program: pef.Program, graph: int, *, link: bool
    ) -> None:
        self._workspace = workspace
        self._program = program
        self._graph = graph
        found = program.graphs[graph]
        self._model = found.model
        self._link = link
        self._everything = Chosen(graph=graph)
        self._whole: tuple[Plan, tuple[Result, ...]] | None = None
        calls = calls_of(program, graph)
        self._types = frozenset(program.sections[program.schedule[call]].type for call in calls)
        starts = {port.gradient for port in found.outputs}
        self._seeds = {
            port.name: program.symbols[port.symbol]
            for port in found.inputs
            if port.symbol in starts
        }
        self._losses = {port.name for port in found.outputs if port.gradient is not None}

    def step(self, inputs: _Inputs | Sequence[_Inputs]) -> dict[str, Array]:
        """Train once over a batch or several, and return the losses."""
        if not isinstance(inputs, Mapping):
            require(inputs=(inputs, _BATCHES))
            if len(inputs) != 1:
                return self._accumulate(inputs)
            inputs = inputs[0]
        plan = self._workspace.plan(self._everything, self._link)
        if self._whole is None or self._whole[0] is not plan:
            self._whole = plan, self._losses_of(plan)
        plan, losses = self._whole
        self._run(plan, inputs)
        return self._workspace.copies(losses)

    def _run(self, plan: Plan, inputs: _Inputs) -> None:
        self._workspace.attach(plan, inputs)
        try:
            self._workspace.runs.run(plan)
        except RunError as error:
            raise with_ranges(error, self._program, inputs, self._model) from error.__cause__

    def _accumulate(self, batches: Sequence[_Inputs]) -> dict[str, Array]:
        """Train once over several batches, each with its share of the gradients."""
        if not batches:
            raise RunError("A training step needs at least one batch.")
        if pef.SectionType.ZEROGRAD not in self._types:
            raise RunError(
                f"A step over {len(batches)} batches needs a program that accumulates gradients; "
                f"compile it with accumulate=True (sambac compile --accumulate)."
            )
        share = {name: _filled(symbol, 1 / len(batches)) for name, symbol in self._seeds.items()}
        totals: dict[str, Array] = {}
        self._workspace.runs.begin_series()
        for number, batch in enumerate(batches):
            begins, ends = number == 0, number == len(batches) - 1
            left_out = (frozenset() if begins else _CLEAR) | (frozenset() if ends else _UPDATE)
            plan = self._workspace.plan(self._without(left_out), self._link)
            self._run(plan, {**share, **batch})
            for name, loss in self._workspace.copies(self._losses_of(plan)).items():
                totals[name] = totals[name] + loss if name in totals else loss
        self._workspace.runs.end_series()
        return {
            name: np.asarray(total / len(batches), total.dtype) for name, total in totals.items()
        }

    def _without(self, left_out: frozenset[pef.SectionType]) -> Chosen:
        return Chosen(tuple(sorted(self._types - left_out)), graph=self._graph)

    def _losses_of(self, plan: Plan) -> tuple[Result, ...]:
        return tuple(result for result in plan.results if result.name in self._losses)


def training_graph(program: pef.Program, model: str | None) -> int:
    """Return the training step of `model`, of the first one that trains if that is None.

    Raises `RunError` for a program, or a model, that does not train.
    """
    trained = trained_models(program.graphs)
    if not trained:
        raise RunError(NOT_TRAINING)
    wanted = trained[0] if model is None else model
    graph = graph_of(program.graphs, wanted, pef.GraphRole.TRAIN)
    if graph is None:
        models = ", ".join(f"'{name}'" for name in trained if name)
        only = f"it has {models}" if models else "it has one model, which needs no name"
        raise RunError(f"There is no model '{model}' that trains in the program; {only}.")
    return graph


def _filled(symbol: pef.Symbol, value: float) -> Array:
    return np.full(static_shape(symbol) or (), value, dtypes.numpy_dtype(symbol.dtype))
