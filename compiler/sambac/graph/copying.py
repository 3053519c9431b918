"""Copies of nodes that read other values, for operators that run once more, or elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir


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
