"""A graph that a caller can run, and the names under which it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from pef.program import GraphRole


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
