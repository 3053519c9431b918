"""Losses of classes of what a mask selects, computed at all places.

    cross_entropy(x[m], t[m])  ->  cross_entropy(where(m, x, 0), where(m, t, ignore_index))
    nll_loss(x[m], t[m])       ->  likewise

for a mask of the rank of t, or one written twice, with all its axes as one. The size of x[m]
depends on values, which a program cannot have; a row whose class is ignored counts in no sum or
mean, and has no gradient.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload
from torch.export import ExportedProgram

from .selected_rows import putter

_aten = torch.ops.aten
_INDEX, _SIZE, _CHECK = _aten.index.Tensor, _aten.sym_size.int, _aten._assert_scalar.default
_LOSSES = (_aten.cross_entropy_loss.default, _aten.nll_loss_nd.default)
_X, _CLASSES, _WEIGHT, _REDUCTION, _IGNORED = range(5)
_DEFAULTS = (None, None, None, 1, -100)
_NONE = 0
"""What PyTorch calls the reduction of none of the losses."""


def keep_rows_of_losses(program: ExportedProgram) -> None:
    """Rewrite losses in `program`, as it was recorded, of classes that a mask selects."""
    graph = program.graph_module.graph
    for operator in _LOSSES:
        for node in graph.find_nodes(op="call_function", target=operator):
            _keep_rows(graph, node)


def _keep_rows(graph: fx.Graph, node: fx.Node) -> None:
    given: list[Any] = [*node.args, *_DEFAULTS[len(node.args) :]]
    selected = given[_X], given[_CLASSES]
    sources = _sources(*selected)
    if sources is None or given[_REDUCTION] == _NONE or node.kwargs:
        return
    x, classes, mask = sources
    count = x.meta["val"].shape[-1]
    put = putter(graph, selected[0])
    rows = put(_aten.where.ScalarOther, put(_aten.unsqueeze.default, mask, -1), x, 0.0)
    given[_X] = put(_aten.reshape.default, rows, [-1, count])
    put = putter(graph, selected[1])
    named = put(_aten.where.ScalarOther, mask, classes, given[_IGNORED])
    given[_CLASSES] = put(_aten.reshape.default, named, [-1])
    node.args = tuple(given)
    for one in dict.fromkeys(selected):
        _drop(graph, one)


def _sources(rows: object, classes: object) -> tuple[fx.Node, fx.Node, fx.Node] | None:
    """Return what one mask selects rows and classes from, and the mask; None if none does."""
    chosen, named = _selected(rows), _selected(classes)
    if chosen is None or named is None or not _are_alike(chosen[1], named[1]):
        return None
    (x, mask), (labels, _) = chosen, named
    values = [node.meta["val"] for node in (x, labels, mask)]
    rank = values[2].dim()
    fits = rank > 0 and values[0].dim() == rank + 1 and values[1].dim() == rank
    whole = values[1].dtype is torch.int64 and values[0].is_floating_point()
    return (x, labels, mask) if fits and whole and isinstance(values[0].shape[-1], int) else None


def _selected(node: object) -> tuple[fx.Node, fx.Node] | None:
    """Return what a node selects from, and the mask by which it does."""
    if not isinstance(node, fx.Node) or node.target is not _INDEX:
        return None
    source, indices = node.args
    if not isinstance(source, fx.Node) or not isinstance(indices, list) or len(indices) != 1:
        return None
    mask = indices[0]
    chooses = isinstance(mask, fx.Node) and mask.meta["val"].dtype is torch.bool
    return (source, mask) if chooses else None


def _are_alike(one: fx.Node, other: fx.Node) -> bool:
    """Tell whether two masks are one node, or one comparison where nothing is written."""
    if one is other:
        return True
    target = one.target
    if target is not other.target or not isinstance(target, OpOverload):
        return False
    same = (one.args, one.kwargs) == (other.args, other.kwargs)
    return same and torch.Tag.pointwise in target.tags and not _writes(one.graph)


def _writes(graph: fx.Graph) -> bool:
    targets = [node.target for node in graph.nodes]
    return any(isinstance(one, OpOverload) and one._schema.is_mutable for one in targets)


def _drop(graph: fx.Graph, node: fx.Node) -> None:
    """Remove a selection that nothing reads but checks of its size."""
    readers: dict[fx.Node, None] = {node: None}
    for one in graph.nodes:
        if any(item in readers for item in one.all_input_nodes):
            readers[one] = None
    leaves = [one for one in readers if not one.users]
    sizes = all(one.target is _SIZE for one in node.users)
    if sizes and all(one is node or one.target is _CHECK for one in leaves):
        for one in reversed(readers):
            graph.erase_node(one)
