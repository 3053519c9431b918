"""Who reads what: readers of a value are given another, and copies of nodes read other values."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from .nodes import static_shape


def redirect(old: ir.Value, new: ir.Value) -> str | None:
    """Let all readers of `old` read `new`; a graph output keeps its name.

    Return the reason when that is impossible: an output of a graph has to be computed in it, and
    one value cannot be two outputs.
    """
    if old.is_graph_output():
        producer, maker = old.producer(), new.producer()
        if maker is None or producer is None or maker.graph is not producer.graph:
            return "a graph output has to be computed in its graph"
        if new.is_graph_output():
            return "both values are graph outputs"
    _adopt_facts(new, old)
    name = old.name
    renamed = old.is_graph_output()
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    if renamed:
        old.name = None
        new.name = name
    return None


def supersede(old: ir.Value, new: ir.Value) -> None:
    """Let all readers of `old` read `new`, which gets its name and its place among outputs."""
    name = old.name
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    old.name = None
    new.name = name


def _adopt_facts(value: ir.Value, other: ir.Value) -> None:
    """Take what is known about an equal value: the type, and dimensions that are numbers."""
    if value.type is None:
        value.type = other.type
    if static_shape(value) is None and other.shape is not None and not value.is_graph_input():
        value.shape = other.shape


def copy_node(
    node: ir.Node,
    copies: dict[ir.Value, ir.Value],
    name: str,
    value_name: Callable[[ir.Value], str],
) -> ir.Node:
    """Return a copy of `node`, called `name`, which belongs to no graph yet.

    Where `copies` has a value for what `node` reads, the copy reads that. What the copy makes has
    the type and shape of what `node` makes, and is added to `copies`; `value_name` returns its
    name. Outputs that `node` leaves out are left out of the copy too.
    """
    outputs = [
        ir.Value(name=value_name(value) if value.name else "", type=value.type, shape=value.shape)
        for value in node.outputs
    ]
    copy = ir.Node(
        node.domain,
        node.op_type,
        [None if value is None else copies.get(value, value) for value in node.inputs],
        list(node.attributes.values()),
        outputs=outputs,
        name=name,
        version=node.version,
        metadata_props=dict(node.metadata_props),
    )
    copies.update(zip(node.outputs, outputs, strict=True))
    return copy
