"""Common subexpressions: what is computed twice in a graph is computed once.

    y = Op(x), z = Op(x)   same operator, inputs, attributes, and outputs in use  ->  z := y
    two equal initializers of at most `bytes` bytes                               ->  one

Never merged: operators that draw random numbers, operators with subgraphs, two outputs of one
graph, initializers that a caller may override, and outputs that are made of constants: zeros that
clear gradients are made once for several passes, and who read them would find what was added up
since. onnx_ir's pass is not used: it would merge dropouts, nodes that leave out different outputs,
and -0 with 0.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.nodes import redirect
from sambac.graph.origins import forget_host_cast, is_host_cast
from sambac.ops import is_random
from sambac.passes.base import Pass


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Merge equal nodes, and equal initializers of at most `bytes` bytes."""

    name: ClassVar[str] = "eliminate_common_subexpressions"
    bytes: int = 1024

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Merge duplicates in each graph of `model` by itself."""
        modified = False
        for graph in model.graphs():
            modified |= self._merge_initializers(graph)
            modified |= _merge_nodes(graph)
        return ir.passes.PassResult(model, modified=modified)

    def _merge_initializers(self, graph: ir.Graph) -> bool:
        kept: dict[Hashable, ir.Value] = {}
        modified = False
        for name, value in tuple(graph.initializers.items()):
            tensor = value.const_value
            if tensor is None or value.is_graph_input() or value.is_graph_output():
                continue
            if tensor.nbytes > self.bytes:
                continue
            first = kept.setdefault(_tensor_key(tensor), value)
            if first is not value and redirect(value, first) is None:
                del graph.initializers[name]
                modified = True
        return modified


def _merge_nodes(graph: ir.Graph) -> bool:
    kept: dict[Hashable, ir.Node] = {}
    modified = False
    for node in tuple(graph):
        key = _node_key(node)
        if key is None:
            continue
        # What it reads was merged before it, so its key is made of first values: equal chains of
        # operators merge from their beginning to their end in this one walk.
        first = kept.setdefault(key, node)
        if first is not node and _can_merge(node, first):
            for old, new in zip(node.outputs, first.outputs, strict=True):
                redirect(old, new)
            if not is_host_cast(node):
                forget_host_cast(first)
            graph.remove(node, safe=True)
            modified = True
    return modified


def _can_merge(node: ir.Node, first: ir.Node) -> bool:
    pairs = zip(node.outputs, first.outputs, strict=True)
    return not any(old.is_graph_output() and new.is_graph_output() for old, new in pairs)


def _node_key(node: ir.Node) -> Hashable | None:
    """Return what two equal computations have in common, None for what must not be merged."""
    if is_random(node) or _is_constant_output(node):
        return None
    attributes = []
    for name in sorted(node.attributes):
        key = _attribute_key(node.attributes[name])
        if key is None:
            return None
        attributes.append((name, key))
    inputs = tuple(None if value is None else id(value) for value in node.inputs)
    outputs = tuple(bool(value.name) for value in node.outputs)
    return (node.domain, node.op_type, node.overload, inputs, outputs, tuple(attributes))


def _is_constant_output(node: ir.Node) -> bool:
    """Tell whether `node` reads constants alone, and makes an output of its graph."""
    reads = (value for value in node.inputs if value is not None)
    outputs = any(value.is_graph_output() for value in node.outputs)
    return outputs and all(value.is_initializer() for value in reads)


def _attribute_key(attribute: ir.Attr) -> Hashable | None:
    """Return a key that differs whenever the attributes do; None for graphs."""
    kind = attribute.type
    if kind in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return None
    if kind == ir.AttributeType.TENSOR:
        return _tensor_key(attribute.as_tensor())
    return (kind, repr(attribute.value))


def _tensor_key(tensor: ir.TensorProtocol) -> Hashable:
    shape = tuple(tensor.shape.numpy())
    if tensor.dtype == ir.DataType.STRING:
        return (tensor.dtype, shape, tuple(tensor.numpy().reshape(-1).tolist()))
    return (tensor.dtype, shape, tensor.tobytes())
