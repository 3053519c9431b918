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

_WHOLE = (ir.DataType.INT32, ir.DataType.INT64)


@dataclass(frozen=True)
class LiftConstants(Pass):
    """Replace each Constant node by an initializer of the same name and graph.

    Initializers of subgraphs that are weights move to the main graph, since only its initializers
    have content of their own in the executable; literals stay where they are read, and so does
    an initializer that is itself the output of its subgraph.

    A whole number that is reshaped is one, too: so PyTorch's exporter writes the axes of
    reductions, without which nobody knows the shapes of these.
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
            reshaped = [
                node for node in [*graph] if _is_reshaped(node) and _lift_reshaped(graph, node)
            ]
            modified |= bool(constants or reshaped)
            if graph is not model.graph:
                modified |= _move_weights(graph, model.graph)
        return ir.passes.PassResult(model, modified=modified)


def _is_constant(node: ir.Node) -> bool:
    return node.domain == "" and node.op_type == "Constant"


def _is_reshaped(node: ir.Node) -> bool:
    is_public = any(value.is_graph_output() for value in node.outputs)
    return node.domain == "" and node.op_type == "Reshape" and not is_public


def _lift_reshaped(graph: ir.Graph, node: ir.Node) -> bool:
    """Do so with whole numbers that are reshaped, if `node` does; return whether it does."""
    found = [None if value is None else _fixed_literal(value) for value in node.inputs]
    data, sizes = found if len(found) == len(("data", "shape")) else (None, None)
    if data is None or sizes is None or 0 in sizes:  # which may stand for a size of `data`
        return False
    try:
        content = data.reshape(sizes.tolist())
    except (TypeError, ValueError):  # what it is told of later, with its shapes
        return False
    _replace(graph, node, ir.Tensor(content))
    return True


def _fixed_literal(value: ir.Value) -> np.ndarray | None:
    """Return the elements of `value`, if it is whole numbers that are the same in every run."""
    tensor = None if value.is_graph_input() else value.const_value
    if tensor is None or tensor.dtype not in _WHOLE or not is_literal(tensor):
        return None
    return tensor.numpy()


def _lift(graph: ir.Graph, node: ir.Node) -> None:
    _replace(graph, node, _content(node))


def _replace(graph: ir.Graph, node: ir.Node, tensor: ir.TensorProtocol) -> None:
    output = node.outputs[0]
    value = ir.Value(
        name=str(output.name),
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
