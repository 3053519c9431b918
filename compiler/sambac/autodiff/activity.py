"""Which values a gradient flows through: those that depend on what is trained."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import onnx_ir as ir

from sambac.graph.nodes import is_stop, subgraphs
from sambac.ops import blocks_gradients


def active_values(graph: ir.Graph, trained: Collection[ir.Value]) -> set[ir.Value]:
    """Return the floating-point values of `graph` through which the loss depends on `trained`.

    A value is active if it is trained, or made by a node with an active input that lets gradients
    through. Nodes stand in topological order.
    """
    active = set(trained)
    for node in graph:
        if is_stop(node) or blocks_gradients(node):
            continue
        if any(value in active for value in reads(node)):
            active.update(value for value in node.outputs if is_float(value))
    return active


def needed_nodes(
    graph: ir.Graph, active: Collection[ir.Value], targets: Iterable[ir.Value]
) -> list[ir.Node]:
    """Return the nodes between what is trained and `targets`, in topological order."""
    wanted = {target for target in targets if target in active}
    nodes = []
    for node in reversed(tuple(graph)):
        if is_stop(node) or blocks_gradients(node):
            continue
        if any(value in wanted for value in node.outputs):
            nodes.append(node)
            wanted.update(value for value in reads(node) if value in active)
    nodes.reverse()
    return nodes


def reads(node: ir.Node) -> Iterable[ir.Value]:
    """Yield what `node` and its subgraphs read."""
    yield from (value for value in node.inputs if value is not None)
    for graph in subgraphs(node):
        for inner in graph:
            yield from reads(inner)
        yield from graph.outputs


def is_float(value: ir.Value) -> bool:
    """Tell whether `value` is a tensor of a floating-point type."""
    return value.dtype is not None and value.dtype.is_floating_point()
