"""What a node and its values say of themselves: graph, inputs, attributes, shapes, stops.

Stops are values through which no gradient flows, although the operator has one: PyTorch's `detach`.
The mark stands on an Identity node and counts until the gradients are made; simplification, which
comes later, removes the node.
"""

from __future__ import annotations

import onnx_ir as ir


def graph_of(node: ir.Node) -> ir.Graph:
    """Return the graph that `node` is in."""
    if node.graph is None:
        raise ValueError(f"node {node.name} is in no graph")
    return node.graph


def input_at(node: ir.Node, index: int) -> ir.Value | None:
    """Return an input of `node`, None where it is absent."""
    return node.inputs[index] if index < len(node.inputs) else None


def int_attribute(node: ir.Node, name: str, default: int = 0) -> int:
    """Return an integer attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def float_attribute(node: ir.Node, name: str, default: float) -> float:
    """Return a floating-point attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_float()


def text_attribute(node: ir.Node, name: str, default: str) -> str:
    """Return a text attribute of `node` or its default."""
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_string()


def modelled_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of `value` with 1 for every open dimension, None without a rank.

    So costs are estimated where only a run tells sizes, such as that of the batch.
    """
    if value is None or value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else 1 for dim in value.shape)


def static_shape(value: ir.Value | None) -> tuple[int, ...] | None:
    """Return the shape of `value` where every dimension is a number, else None."""
    if value is None or value.shape is None:
        return None
    dims = tuple(dim for dim in value.shape if isinstance(dim, int))
    return dims if len(dims) == len(value.shape) else None


_KEY = "stop_gradient"


def mark_stop(node: ir.Node) -> None:
    """Let no gradient flow through `node`, an Identity."""
    node.metadata_props[_KEY] = "1"


def is_stop(node: ir.Node) -> bool:
    """Tell whether `node` bears the mark."""
    return _KEY in node.metadata_props
