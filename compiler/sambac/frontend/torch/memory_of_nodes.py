"""What operators of a program write, and whose memory their results have, by their schemas."""

from __future__ import annotations

import operator
from itertools import zip_longest

import torch
from torch import fx

_aten = torch.ops.aten
_NORMALIZE = (_aten.batch_norm.default, _aten.instance_norm.default)


def written_by(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that `node` changes."""
    return [value for value in _written(node) if isinstance(value, fx.Node)]


def written_in_lists(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that `node` changes and that are in lists, unlike those of `written_by`."""
    lists = (value for value in _written(node) if isinstance(value, (list, tuple)))
    return [value for each in lists for value in each if isinstance(value, fx.Node)]


def _written(node: fx.Node) -> list[object]:
    """Return the arguments that `node` changes, by its schema."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    return [
        node.kwargs.get(item.name, value)
        for item, value in zip_longest(schema.arguments, node.args)
        if item.alias_info is not None and item.alias_info.is_write
    ]


def written_statistics(node: fx.Node) -> list[fx.Node]:
    """Return what `node` changes without saying so: the fourth and fifth argument, if the sixth is.

    Those are the statistics of a normalization.
    """
    writes = node.target in _NORMALIZE and bool(node.args[5])
    return [value for value in node.args[3:5] if isinstance(value, fx.Node)] if writes else []


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
