"""What ends the way of rows that a mask selects: sums of them, and places that they go back to.

z.scatter_add(0, i, s)  ->  cat([z, 0]).scatter_add(0, where(live, i, n), s)[:n]
s.sum(), s.mean(0)      ->  where(live, s, 0).sum(), where(live, s, 0).sum(0) / live.sum()
s.max()                 ->  where(live, s, -inf).max()
mse_loss(s, t)          ->  where(live, mse_loss(s, t, reduction="none"), 0).sum() / live.sum()
y[m] = s                ->  y = where(m, s, y)
t / s.shape[0]          ->  t / live.sum()
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import fx

from .element_losses import AVERAGE, is_reduced, reduction_of
from .live_rows import LiveRows, along
from .putting import Put
from .rows import (
    CAT,
    SELECTED,
    SelectedRows,
    arguments,
    axes_along,
    axis_of,
    has_known_sizes,
)

_aten = torch.ops.aten
_ADDS = (_aten.index_add.default, _aten.scatter_add.default, _aten.scatter_reduce.two)
_PUT = _aten.index_put.default
_SUM, _SUM_ALONG = _aten.sum.default, _aten.sum.dim_IntList
_MEAN, _MEAN_ALONG = _aten.mean.default, _aten.mean.dim
_NORM = _aten.linalg_vector_norm.default
_NEUTRAL = {
    **dict.fromkeys((_SUM, _SUM_ALONG, _MEAN, _MEAN_ALONG, _NORM), 0.0),
    **dict.fromkeys((_aten.amax.default, _aten.max.default), -math.inf),
    **dict.fromkeys((_aten.amin.default, _aten.min.default), math.inf),
}
"""What changes no result of operators over rows."""
_SUMMED = (torch.float32, torch.float64)
_RATIOS = (_aten.div.Tensor, _aten.mul.Tensor)


def is_end(node: fx.Node, rows: SelectedRows) -> bool:
    """Tell whether `node` makes a tensor of known sizes of rows, in a way that may keep all."""
    members = rows.members(node)
    if not has_known_sizes(node.meta["val"]) or rows.order(members) is None:
        return False
    if node.target in _ADDS:
        return _adds(node, rows)
    if node.target is _PUT:
        return _puts_back(node, rows)
    if is_reduced(node):
        first, *others = (item.meta["val"].shape for item in node.all_input_nodes)
        alike = all(_are_alike(first, shape, rows) for shape in others)
        return members == node.all_input_nodes and alike and _is_summed(members[0])
    if node.target not in _NEUTRAL or not _is_summed(members[0]):
        return False
    if node.target is _NORM and not _is_above_zero(node):
        return False
    named = axes_along(node)
    return named is None or rows.axes[members[0]] in named


def _are_alike(shape: torch.Size, other: torch.Size, rows: SelectedRows) -> bool:
    return len(shape) == len(other) and all(map(rows.are_same, shape, other))


def _is_summed(node: fx.Node) -> bool:
    return node.meta["val"].dtype in _SUMMED


def _is_above_zero(node: fx.Node) -> bool:
    """Tell whether the order of a norm is such that zeros count for nothing."""
    order = node.args[1] if len(node.args) > 1 else 2
    return isinstance(order, (int, float)) and order > 0


def is_ratio(node: fx.Node, rows: SelectedRows) -> bool:
    """Tell whether `node` divides or multiplies a tensor by a number of rows, or of their elements.

    It reads no row.
    """
    if node.target not in _RATIOS or node.kwargs or rows.members(node):
        return False
    value, size = node.args
    plain = isinstance(value, fx.Node) and not rows.is_size(value) and _is_summed(value)
    if not (plain and isinstance(size, fx.Node) and rows.is_size(size)):
        return False
    return rows.line(size.meta["val"]) is not None


def _adds(node: fx.Node, rows: SelectedRows) -> bool:
    """Tell whether `node` adds rows up, by indices that are rows, to a tensor of known sizes."""
    target, _, index, source = arguments(node)[:4]
    axis = axis_of(node)
    of_index = axis if index.meta["val"].dim() > 1 else 0
    return (
        target not in rows.axes
        and rows.axes.get(source) == axis
        and rows.axes.get(index) == of_index
        and rows.are_same(index.meta["val"].shape[of_index], source.meta["val"].shape[axis])
    )


def _puts_back(node: fx.Node, rows: SelectedRows) -> bool:
    """Tell whether `node` puts all that the mask selects where it comes from."""
    if len(node.args) != len(("x", "indices", "values")):
        return False
    x, indices, values = arguments(node)
    *others, mask = indices
    rank = x.meta["val"].dim() - rows.masks[0].meta["val"].dim() + 1
    return (
        not any(others)
        and mask in rows.masks
        and isinstance(values, fx.Node)
        and rows.axes.get(values) == len(others)
        and rows.orders[values] == (SELECTED,)
        and values.meta["val"].dim() == rank
        and rows.members(node) == [values]
    )


@dataclass(frozen=True)
class Ending:
    """An operator on rows that are selected, and what it is given of all rows."""

    node: fx.Node
    args: Sequence[Any]
    kwargs: Mapping[str, Any]

    def of_all(self, put: Put, lives: LiveRows) -> fx.Node:
        """Return what stands for it."""
        node = self.node
        if node.target in _ADDS:
            return self._added(put, lives)
        if node.target is _PUT:
            return self._back(put, lives)
        if node.target in _NEUTRAL:
            return self._total(put, lives, node.target, self.args)
        if is_reduced(node):
            given, reduction = reduction_of(node)
            pairs = zip(node.args, self.args, strict=True)
            known = {one: other for one, other in pairs if isinstance(one, fx.Node)}
            given = fx.map_arg(given, lambda item: known[item])
            losses = put(node.target, *given, **self.kwargs)
            operator = _MEAN if reduction == AVERAGE else _SUM
            return Ending(node, [losses], {})._total(put, lives, operator, [losses])
        return self._ratio(put, lives)

    def _total(self, put: Put, lives: LiveRows, operator: Any, args: Sequence[Any]) -> fx.Node:
        """Return a sum or the like of the rows that are selected, along axes or of all."""
        members = lives.rows.members(self.node)
        values, *others = args
        shape = values.meta["val"].shape
        axis = lives.rows.axes[members[0]]
        live = lives.of(put, *members)
        mask = along(put, live, axis, len(shape))
        chosen = put(_aten.where.ScalarOther, mask, values, _NEUTRAL[operator])
        if operator not in (_MEAN, _MEAN_ALONG):
            return put(operator, chosen, *others, **self.kwargs)
        named = axes_along(self.node) if operator is _MEAN_ALONG else None
        averaged = range(len(shape)) if named is None else named
        total = put(_SUM if named is None else _SUM_ALONG, chosen, *others, **self.kwargs)
        each = prod(shape[at] for at in averaged if at != axis)
        return put(_aten.div.Tensor, total, _count(put, live, each))

    def _ratio(self, put: Put, lives: LiveRows) -> fx.Node:
        """Return what is divided or multiplied by a number of rows."""
        size = self.node.args[1]
        assert isinstance(size, fx.Node)
        each, more = lives.rows.line(size.meta["val"]) or (1, 0)
        return put(self.node.target, self.args[0], _count(put, lives.mask(put), each, more))

    def _back(self, put: Put, lives: LiveRows) -> fx.Node:
        """Return what rows are put back to, at their places."""
        x, indices, values = self.args
        mask, shape = lives.rows.masks[0], values.meta["val"].shape
        axis = len(indices) - 1
        sizes = [*shape[:axis], *mask.meta["val"].shape, *shape[axis + 1 :]]
        for _ in shape[axis + 1 :]:
            mask = put(_aten.unsqueeze.default, mask, -1)
        return put(_aten.where.self, mask, put(_aten.reshape.default, values, sizes), x)

    def _added(self, put: Put, lives: LiveRows) -> fx.Node:
        """Return what is added up, of the rows that are selected."""
        target, _, index, source, *others = self.args
        axis = axis_of(self.node)
        size = target.meta["val"].shape[axis]
        more = [*target.meta["val"].shape[:axis], 1, *target.meta["val"].shape[axis + 1 :]]
        longer = put(CAT, [target, put(_aten.new_zeros.default, target, more)], axis)
        live = lives.of(put, *self.node.args[2:4])
        rank = index.meta["val"].dim()
        live = along(put, live, axis if rank > 1 else 0, rank)
        places = put(_aten.where.ScalarOther, live, index, size)
        summed = put(self.node.target, longer, axis, places, source, *others, **self.kwargs)
        return put(_aten.slice.Tensor, summed, axis, 0, size)


def _count(put: Put, live: fx.Node, each: int, more: int = 0) -> fx.Node:
    """Return how many rows are selected, times `each`, and `more`."""
    count = put(_SUM, live)
    count = count if each == 1 else put(_aten.mul.Tensor, count, each)
    return count if more == 0 else put(_aten.add.Tensor, count, more)
