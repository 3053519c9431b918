"""Which of all rows a mask selects, and what stands in the places of those that it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from .putting import Put
from .rows import CAT, INDEX, SELECTED, Order, SelectedRows

_aten = torch.ops.aten
_DIVIDES, _POWERS = _aten.div.Tensor, _aten.pow.Tensor_Scalar
_STEEP = (
    _DIVIDES,
    _POWERS,
    _aten.acos.default,
    _aten.acosh.default,
    _aten.asin.default,
    _aten.atanh.default,
    _aten.linalg_vector_norm.default,
    _aten.log.default,
    _aten.log10.default,
    _aten.log1p.default,
    _aten.log2.default,
    _aten.logit.default,
    _aten.norm.ScalarOpt_dim,
    _aten.pow.Scalar,
    _aten.pow.Tensor_Tensor,
    _aten.reciprocal.default,
    _aten.rsqrt.default,
    _aten.sqrt.default,
    _aten.std.correction,
    _aten.xlogy.Tensor,
)
"""Operators whose slope may be infinite, or no number, at numbers that none selected."""


@dataclass(frozen=True)
class LiveRows:
    """Which rows are selected, by their order; what is known of the mask once it is asked."""

    rows: SelectedRows
    known: dict[Order, fx.Node]
    of_mask: dict[str, fx.Node]

    def mask(self, put: Put) -> fx.Node:
        """Return the mask along one axis."""
        mask = self.rows.masks[0]
        if mask.meta["val"].dim() == 1:
            return mask
        if "flat" not in self.of_mask:
            self.of_mask["flat"] = put(_aten.reshape.default, mask, [-1])
        return self.of_mask["flat"]

    def of(self, put: Put, *nodes: Any) -> fx.Node:
        """Return which rows of `nodes`, which have them in one order, are selected."""
        order = self.rows.order(nodes)
        assert order is not None
        if order not in self.known:
            mask = self.mask(put)
            parts = [
                mask if size == SELECTED else put(_aten.new_ones.default, mask, [size])
                for size in order
            ]
            self.known[order] = put(CAT, parts) if len(parts) > 1 else mask
        return self.known[order]

    def first(self, put: Put) -> tuple[fx.Node, fx.Node]:
        """Return the place of the first row that the mask selects, and whether there is one."""
        if "place" not in self.of_mask:
            mask = self.mask(put)
            number = put(_aten._to_copy.default, mask, dtype=torch.int32)
            self.of_mask["place"] = put(_aten.argmax.default, number, 0, True)
            self.of_mask["is_there"] = put(_aten.any.default, mask)
        return self.of_mask["place"], self.of_mask["is_there"]


def along(put: Put, live: fx.Node, axis: int, rank: int) -> fx.Node:
    """Return `live` along `axis` of `rank` axes."""
    return put(_aten.reshape.default, live, [1] * axis + [-1] + [1] * (rank - axis - 1))


def filled(put: Put, node: fx.Node, lives: LiveRows) -> fx.Node:
    """Return what `node` selects from, with its first selected row where it selects none.

    The axes of the mask become one.
    """
    source, axis = node.args[0], lives.rows.axes[node]
    assert isinstance(source, fx.Node)
    shape = source.meta["val"].shape
    of_mask = lives.rows.masks[0].meta["val"].dim()
    if of_mask > 1:
        sizes = [*shape[:axis], lives.rows.length, *shape[axis + of_mask :]]
        source = put(_aten.reshape.default, source, sizes)
    place, is_there = lives.first(put)
    row = put(_aten.index_select.default, put(_aten.detach.default, source), axis, place)
    filling = put(_aten.where.self, is_there, row, put(_aten.ones_like.default, row))
    live = along(put, lives.mask(put), axis, source.meta["val"].dim())
    return put(_aten.where.self, live, source, filling)


def inside(put: Put, node: fx.Node, args: Sequence[Any], lives: LiveRows) -> Sequence[Any]:
    """Return the arguments of a look-up, whose indices exist where nothing is selected, too."""
    index = node.all_input_nodes[-1]
    *others, wanted = args
    at = wanted[-1] if node.target is INDEX else wanted
    live = lives.of(put, index)
    is_meant = put(_aten.logical_or.default, live, lives.first(put)[1])
    is_meant = along(put, is_meant, lives.rows.axes[index], index.meta["val"].dim())
    at = put(_aten.where.ScalarOther, is_meant, at, 0)
    return [*others, [*wanted[:-1], at] if node.target is INDEX else at]


def sloping(put: Put, node: fx.Node, args: Sequence[Any], lives: LiveRows) -> Sequence[Any]:
    """Return the arguments of `node`, on rows: those that are not selected give them no gradient.

    Where the mask selects none they are of no row, and their slope, times 0, may be no number.
    """
    members = lives.rows.members(node)
    if not _is_steep(node) or lives.rows.order(members) is None:
        return args
    rank, axis = max((item.meta["val"].dim(), lives.rows.axes[item]) for item in members)
    live = along(put, lives.of(put, *members), axis, rank)

    def chosen(item: fx.Node) -> fx.Node:
        if not item.meta["val"].is_floating_point():
            return item
        return put(_aten.where.self, live, item, put(_aten.detach.default, item))

    found: Sequence[Any] = fx.map_arg(tuple(args), chosen)
    return found


def _is_steep(node: fx.Node) -> bool:
    by = node.args[1] if len(node.args) > 1 else None
    if node.target is _DIVIDES:
        return isinstance(by, fx.Node)
    return node.target in _STEEP and not (
        node.target is _POWERS and isinstance(by, int) and by >= 0
    )
