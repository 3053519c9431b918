"""What operators of a program write, and whose memory their results have, by their schemas."""

from __future__ import annotations

import operator
from itertools import zip_longest

import torch
from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

_aten = torch.ops.aten
_DROPOUT, _LIFT = _aten.dropout.default, _aten.lift.default
_COPYING = (_aten.lift_fresh_copy.default, _aten.native_dropout.default)
"""Operators whose results have memory of their own, though descriptions of them may share it."""

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


def given_as_it_is(node: fx.Node) -> fx.Node | None:
    """Return the tensor that `node` gives as it is, if it lifts, or is dropout that drops nothing.

    Recordings have a copy there, and PyTorch the tensor itself.
    """
    if node.target is _LIFT:
        return node.all_input_nodes[0]
    if node.target is not _DROPOUT:
        return None
    given = {**dict(zip(("input", "p", "train"), node.args, strict=False)), **node.kwargs}
    return None if given["train"] and given["p"] != 0 else node.all_input_nodes[0]


def viewed_unsaid(node: fx.Node) -> fx.Node | None:
    """Return the tensor whose memory an operator's result has, if its schema does not say so."""
    if not isinstance(node.target, OpOverload) or node.target in _COPYING:
        return None  # for a number that code has, a recording lets it be the constant
    if viewed(node) is not None:
        return None
    shared = memories(node)
    sources = (one for one in node.all_input_nodes if not shared.isdisjoint(memories(one)))
    return next(sources, None)


def memories(node: fx.Node) -> set[int]:
    """Return what results of `node` have in common with those of others that share memory."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return {one.untyped_storage()._cdata for one in leaves if type(one) is FakeTensor}
