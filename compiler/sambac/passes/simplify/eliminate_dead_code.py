"""Dead code: what no output needs.

    y = Op(x), y read by nobody              ->  nothing, unless y is a graph output
    y, z = Op(x), z optional, read by nobody ->  y = Op(x)          (MaxPool's indices cost 10x)
    an initializer read by nobody            ->  nothing, unless it is a graph input or output

In subgraphs too. onnx_ir's own pass does the nodes and the initializers of the main graph. What was
read in a subgraph that is gone, such as a branch that is never taken, is read no longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from sambac.graph.nodes import all_graphs, all_nodes, own_values
from sambac.passes.base import Pass


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Remove nodes, optional outputs and initializers that nothing reads."""

    name: ClassVar[str] = "eliminate_dead_code"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Remove dead code in `model`, subgraphs included."""
        modified = RemoveUnusedNodesPass()(model).modified
        while _forget_removed(model):
            modified |= RemoveUnusedNodesPass()(model).modified
        _keep_limits(model)
        for graph in all_graphs(model.graph):
            kept = {*graph.outputs, *graph.inputs}
            for value in tuple(graph.initializers.values()):
                if not value.uses() and value not in kept:
                    del graph.initializers[_name(value)]
                    modified = True
        return ir.passes.PassResult(model, modified=modified)


def _keep_limits(model: ir.Model) -> None:
    """Let each Loop name its limits, absent or not: a step's number, and a condition.

    What is absent at the end of inputs goes with what is unused, but ONNX asks for these two.
    """
    for node in all_nodes(model.graph):
        if node.domain == "" and node.op_type == "Loop":
            node.resize_inputs(max(len(node.inputs), 2))


def _forget_removed(model: ir.Model) -> bool:
    """Cut off readers that went with a node that held them; return whether there were any.

    They keep counting as readers of what the graphs around them make.
    """
    present = set(all_graphs(model.graph))
    removed = {
        reader
        for graph in present
        for value in own_values(graph)
        for reader, _ in value.uses()
        if reader.graph not in present
    }
    for reader in removed:
        for index in range(len(reader.inputs)):
            reader.replace_input_with(index, None)
    return bool(removed)


def _name(value: ir.Value) -> str:
    if value.name is None:
        raise ValueError("an initializer has no name")
    return value.name
