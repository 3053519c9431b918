"""The two graphs of a training program, and how they are told apart.

A training step and an evaluation stand over the same states, whose names they share. Everything
else of the evaluation is called `eval/...`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from pef.program import GraphRole
from pef.states import EVAL_GRAPH, TRAIN_GRAPH
from sambac.facts import StepFacts
from sambac.graph.traversal import all_nodes
from sambac.planning.program_plan import NamedModel


@dataclass(frozen=True)
class StepGraphs:
    """A training step and an evaluation as two graphs over the same states.

    `public` and `evaluated` map the outputs that a user knows to the values behind them, in the
    training and in the evaluation graph. `defaults` are of inputs that may be left out.
    """

    model: ir.Model
    evaluation: ir.Model
    facts: StepFacts
    public: Mapping[str, str]
    evaluated: Mapping[str, str]
    defaults: Mapping[str, ir.TensorProtocol]
    warnings: tuple[str, ...]

    def graphs(self) -> tuple[NamedModel, NamedModel]:
        """Return the two graphs under their names, with no name of a value in common but inputs."""
        hidden = {*self.facts.states, *self.facts.masks, *(p.name for p in self.facts.packs)}
        renamed = _set_apart(self.evaluation, self.model)
        return (
            NamedModel(
                TRAIN_GRAPH,
                self.model,
                _inputs(self.model, hidden),
                self.public,
                role=GraphRole.TRAIN,
            ),
            NamedModel(
                EVAL_GRAPH,
                self.evaluation,
                _inputs(self.evaluation, hidden),
                {name: renamed.get(value, value) for name, value in self.evaluated.items()},
                role=GraphRole.EVAL,
            ),
        )


def _inputs(model: ir.Model, hidden: set[str]) -> dict[str, str]:
    names = (str(value.name) for value in model.graph.inputs)
    return {name: name for name in names if name not in hidden}


def _set_apart(evaluation: ir.Model, model: ir.Model) -> dict[str, str]:
    """Rename nodes and values of `evaluation`; return the new names of values by the old ones.

    Inputs keep their names, and so do constants that are the same in `model`.
    """
    renamed: dict[str, str] = {}
    constants = model.graph.initializers
    for value in tuple(evaluation.graph.initializers.values()):
        twin = constants.get(str(value.name))
        if twin is None or not _same(twin.const_value, value.const_value):
            _rename(value, renamed)
    for node in all_nodes(evaluation.graph):
        node.name = f"eval/{node.name}"
        for value in node.outputs:
            if value.name:
                _rename(value, renamed)
    return renamed


def _rename(value: ir.Value, renamed: dict[str, str]) -> None:
    name = f"eval/{value.name}"
    renamed[str(value.name)] = name
    value.name = name


def _same(one: ir.TensorProtocol | None, other: ir.TensorProtocol | None) -> bool:
    if one is None or other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return one is other or one.tobytes() == other.tobytes()
