"""Dead code: what no output needs.

    y = Op(x), y read by nobody              ->  nothing, unless y is a graph output
    y, z = Op(x), z optional, read by nobody ->  y = Op(x)          (MaxPool's indices cost 10x)
    an initializer read by nobody            ->  nothing, unless it is a graph input or output

In subgraphs too. onnx_ir's own pass does the nodes and the initializers of the main graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from .base import Pass


@dataclass(frozen=True)
class RemoveDead(Pass):
    """Remove nodes, optional outputs and initializers that nothing reads."""

    name: ClassVar[str] = "remove_dead"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove dead code in `model`, subgraphs included."""
        modified = RemoveUnusedNodesPass()(model).modified
        for graph in model.graphs():
            kept = {*graph.outputs, *graph.inputs}
            for value in tuple(graph.initializers.values()):
                if not value.uses() and value not in kept:
                    del graph.initializers[_name(value)]
                    modified = True
        return ir.passes.PassResult(model, modified=modified)


def _name(value: ir.Value) -> str:
    if value.name is None:
        raise ValueError("an initializer has no name")
    return value.name
