"""A graph that a caller can run, and the names under which it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir


@dataclass(frozen=True)
class NamedModel:
    """A graph under its name; `inputs` and `outputs` map public names to its values, in order."""

    name: str
    model: ir.Model
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def named_model(
    name: str, model: ir.Model, inputs: Sequence[str], outputs: Sequence[str]
) -> NamedModel:
    """Return `model` with public names for all of its inputs and outputs, in its order."""
    return NamedModel(
        name, model, _ports(inputs, model.graph.inputs), _ports(outputs, model.graph.outputs)
    )


def _ports(names: Sequence[str], values: Sequence[ir.Value]) -> dict[str, str]:
    return dict(zip(names, (str(value.name) for value in values), strict=True))
