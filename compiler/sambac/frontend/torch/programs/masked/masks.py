"""Places that a mask is made into, said as the mask again.

    i, j = m.nonzero(as_tuple=True), x[i, j]     ->  x[m]
    i = m.nonzero().squeeze(1), x[i]             ->  x[m]     m with one axis
    x.index_select(0, i), x.index_copy(0, i, y)  ->  x[m], index_put(x, m, y)

They are the same, and of what masks select it is known how to keep its size.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx

_aten = torch.ops.aten
_INDEX, _PUT = _aten.index.Tensor, _aten.index_put.default
_PLACES, _COLUMNS = _aten.nonzero.default, (_aten.nonzero_numpy.default, _aten.where.default)
_ALONG = {_aten.index_select.default: _INDEX, _aten.index_copy.default: _PUT}
"""Operators on places along an axis, and those on masks."""
_ONE_COLUMN = (
    _aten.reshape.default,
    _aten.select.int,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.view.default,
)
"""Operators that may leave out the axis of the numbers of a place, where that has one."""


def name_masks(graph: fx.Graph) -> None:
    """Let what reads places of a mask in `graph` read the mask."""
    for target in (_INDEX, _PUT):
        for node in graph.find_nodes(op="call_function", target=target):
            source, indices, *others = node.args
            behind = [item for item in indices if item is not None]
            axis = len(indices) - len(behind)
            mask = _mask_of(behind) if all(indices[axis:]) else None
            if mask is not None and _covers(mask, source, axis):
                node.args = (source, [*indices[:axis], mask], *others)
    for target, named in _ALONG.items():
        for node in graph.find_nodes(op="call_function", target=target):
            source, axis, index, *values = node.args
            mask = _mask_of([index])
            if mask is not None and source.meta["val"].dim():
                axis %= source.meta["val"].dim()
                if _covers(mask, source, axis):
                    node.target, node.args = named, (source, [*[None] * axis, mask], *values)


def _covers(mask: fx.Node, source: fx.Node, axis: int) -> bool:
    """Tell whether `mask` has the sizes of `source` from `axis` on: places may be of fewer."""
    sizes = mask.meta["val"].shape
    return str(source.meta["val"].shape[axis : axis + len(sizes)]) == str(sizes)


def _mask_of(places: Sequence[fx.Node]) -> fx.Node | None:
    """Return the mask whose places `places` are, axis by axis; None if there is none."""
    if len(places) == 1 and places[0].target in _ONE_COLUMN:
        (source, *_) = places[0].all_input_nodes
        whole = source.target is _PLACES and _has_all(places[0], source)
        return _with_axes(source, 1) if whole else None
    makers = {item.args[0] for item in places if item.target is operator.getitem}
    numbers = [item.args[1] for item in places if item.target is operator.getitem]
    if len(makers) != 1 or numbers != [*range(len(places))]:
        return None
    (maker,) = makers
    assert isinstance(maker, fx.Node)
    return _with_axes(maker, len(places)) if maker.target in _COLUMNS else None


def _has_all(places: fx.Node, source: fx.Node) -> bool:
    """Tell whether `places` has one axis, which is the first of `source`."""
    one, other = places.meta["val"].shape, source.meta["val"].shape
    return len(one) == 1 and isinstance(one[0], torch.SymInt) and str(one[0]) == str(other[0])


def _with_axes(maker: fx.Node, count: int) -> fx.Node | None:
    """Return the mask that `maker` makes places of, if it is one with so many axes."""
    mask = maker.args[0]
    assert isinstance(mask, fx.Node)
    value = mask.meta["val"]
    return mask if value.dtype is torch.bool and value.dim() == count else None
