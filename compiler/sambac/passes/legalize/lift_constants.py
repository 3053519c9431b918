"""Turn Constant nodes into initializers, and bring all weights into the main graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.constants import has_element_type, is_literal
from sambac.graph.nodes import all_graphs
from sambac.passes.base import SUBGRAPHS, Pass

_READERS: Mapping[str, Callable[[ir.Attr], ir.TensorProtocol]] = {
    "value": lambda attr: attr.as_tensor(),
    "value_float": lambda attr: ir.Tensor(np.asarray(attr.as_float(), np.float32)),
    "value_floats": lambda attr: ir.Tensor(np.asarray(attr.as_floats(), np.float32)),
    "value_int": lambda attr: ir.Tensor(np.asarray(attr.as_int(), np.int64)),
    "value_ints": lambda attr: ir.Tensor(np.asarray(attr.as_ints(), np.int64)),
    "value_string": lambda attr: _strings([attr.as_string()], ()),
    "value_strings": lambda attr: _strings(attr.as_strings(), (len(attr.as_strings()),)),
}


@dataclass(frozen=True)
class LiftConstants(Pass):
    """Replace each Constant node by an initializer of the same name and graph.

    Initializers of subgraphs that are weights move to the main graph, since only its initializers
    have content of their own in the executable; literals stay where they are read, and so does
    an initializer that is itself the output of its subgraph.
    """

    name: ClassVar[str] = "lift_constants"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Constant", SUBGRAPHS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lift the constants of `model`, whose names must be unique."""
        modified = False
        for graph in list(all_graphs(model.graph)):
            constants = [node for node in graph if _is_constant(node)]
            for node in constants:
                _lift(graph, node)
            modified |= bool(constants)
            if graph is not model.graph:
                modified |= _move_weights(graph, model.graph)
        return ir.passes.PassResult(model, modified=modified)


def _is_constant(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type == "Constant"


def _lift(graph: ir.Graph, node: ir.Node) -> None:
    output = node.outputs[0]
    name = str(output.name)
    tensor = _content(node)
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(tensor.shape.numpy()),
        const_value=tensor,
    )
    output.replace_all_uses_with(value, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    graph.register_initializer(value)


def _content(node: ir.Node) -> ir.TensorProtocol:
    for name, attribute in node.attributes.items():
        if name in _READERS:
            try:
                tensor = _READERS[name](attribute)
            except (TypeError, ValueError):
                break
            if has_element_type(tensor):
                return tensor
    raise CompileError(
        f"the Constant node '{node.name}' has no value that the ONNX standard knows; "
        "export the model again"
    )


def _move_weights(graph: ir.Graph, main: ir.Graph) -> bool:
    outputs = set(graph.outputs)
    moved = [
        value
        for value in graph.initializers.values()
        if value.const_value is not None
        and not is_literal(value.const_value)
        and value not in outputs
    ]
    for value in moved:
        graph.initializers.pop(str(value.name))
        main.register_initializer(value)
    return bool(moved)


def _strings(texts: Sequence[str], shape: tuple[int, ...]) -> ir.TensorProtocol:
    return ir.StringTensor([text.encode() for text in texts], shape=ir.Shape(shape))
