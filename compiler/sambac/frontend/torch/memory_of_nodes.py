"""What operators of a program write, and whose memory their results have, by their schemas."""

from __future__ import annotations

import operator
from itertools import zip_longest

from torch import fx


def written_by(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that `node` changes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    given = zip_longest(schema.arguments, node.args)
    return [
        value
        for item, value in ((item, node.kwargs.get(item.name, value)) for item, value in given)
        if isinstance(value, fx.Node) and item.alias_info is not None and item.alias_info.is_write
    ]


def viewed(node: fx.Node) -> fx.Node | None:
    """Return the tensor whose memory the result of `node` has, if there is one."""
    schema = getattr(node.target, "_schema", None)
    returns = schema.returns if schema is not None else ()
    shares = any(item.alias_info is not None for item in returns[:1])
    return node.all_input_nodes[0] if shares or node.target is operator.getitem else None


def base_of(node: fx.Node) -> fx.Node:
    """Return what `node` is a view of, itself if of nothing."""
    while (source := viewed(node)) is not None:
        node = source
    return node
