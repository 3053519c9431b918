"""Places that a mask is made into, said as the mask again.

    i, j = m.nonzero(as_tuple=True), x[i, j]     ->  x[m]
    i = m.nonzero().squeeze(1), x[i]             ->  x[m]     m with one axis
    x.index_select(0, i), x.index_copy(0, i, y)  ->  x[m], index_put(x, m, y)
    i, j = torch.where(m), x[j, i]               ->  x.transpose(0, 1)[m]
    i, j = torch.where(m), f(i)                  ->  f(numbers of rows[m])

They are the same, and of what masks select it is known how to keep its size.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

import torch
from torch import fx

from sambac.frontend.torch.programs.writes import noted

from .putting import putter

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
    for node in _makers(graph):
        _ask_for_zeros(graph, node)
        if node.target is _PLACES:
            _give_columns(graph, node)
    for node in graph.find_nodes(op="call_function", target=_INDEX):
        _turn(graph, node)
    for target in (_INDEX, _PUT):
        for node in graph.find_nodes(op="call_function", target=target):
            _name_mask(node)
    for target, named in _ALONG.items():
        for node in graph.find_nodes(op="call_function", target=target):
            source, axis, index, *values = node.args
            mask = _mask_of([index])
            if mask is not None and source.meta["val"].dim():
                axis %= source.meta["val"].dim()
                if _covers(mask, source, axis):
                    node.target, node.args = named, (source, [*[None] * axis, mask], *values)


def _makers(graph: fx.Graph) -> list[fx.Node]:
    """Return what makes places of a mask."""
    targets = (_PLACES, *_COLUMNS)
    found = (graph.find_nodes(op="call_function", target=target) for target in targets)
    return [node for nodes in found for node in nodes]


def _name_mask(node: fx.Node) -> None:
    """Let `node`, which reads or writes at places of a mask, read the mask."""
    source, indices, *others = node.args
    assert isinstance(source, fx.Node)
    assert isinstance(indices, list)
    behind = [item for item in indices if item is not None]
    axis = len(indices) - len(behind)
    mask = _mask_of(behind) if all(indices[axis:]) else None
    if mask is not None and _covers(mask, source, axis):
        node.args = (source, [*indices[:axis], mask], *others)


def number_places(graph: fx.Graph) -> bool:
    """Let what reads places of a mask in `graph` along one axis select numbers by the mask.

    Returns whether there is such a place.
    """
    found = False
    for node in _makers(graph):
        mask = node.args[0]
        assert isinstance(mask, fx.Node)
        for place in tuple(node.users):
            axis = _axis_of(place, node)
            found |= axis is not None and _number(graph, place, mask, axis)
    return found


def _ask_for_zeros(graph: fx.Graph, node: fx.Node) -> None:
    """Let `node`, which gives the places of what is not zero, read a mask."""
    source = node.args[0]
    assert isinstance(source, fx.Node)
    if source.meta["val"].dtype is not torch.bool:
        node.args = (putter(graph, node)(_aten.ne.Scalar, source, 0),)


def _give_columns(graph: fx.Graph, node: fx.Node) -> None:
    """Let what reads a column of `node`, a table of places, read the columns alone."""
    read = [
        place
        for place in node.users
        if place.target is _aten.select.int and place.args[1] in (1, -1)
    ]
    if not read:
        return
    mask = node.args[0]
    assert isinstance(mask, fx.Node)
    with graph.inserting_after(node):
        columns = graph.call_function(_aten.nonzero_numpy.default, (mask,))
    columns.meta = noted(node, val=[read[0].meta["val"]] * mask.meta["val"].dim())
    for place in read:
        _, _, number = place.args
        assert isinstance(number, int)
        with graph.inserting_before(place):
            column = graph.call_function(
                operator.getitem, (columns, number % mask.meta["val"].dim())
            )
        column.meta = noted(place)
        place.replace_all_uses_with(column)
        graph.erase_node(place)


def _turn(graph: fx.Graph, node: fx.Node) -> None:
    """Let `node` read its source with axes in the order of the mask that its indices are of."""
    source, indices = node.args
    assert isinstance(source, fx.Node)
    assert isinstance(indices, list)
    columns = [item for item in indices if item is not None and item.target is operator.getitem]
    numbers = [item.args[1] for item in columns]
    count = len(numbers)
    if count < len(indices) or numbers == [*range(count)] or sorted(numbers) != [*range(count)]:
        return
    ordered = sorted(range(count), key=numbers.__getitem__)
    if _mask_of([columns[at] for at in ordered]) is None:
        return
    axes = [*ordered, *range(count, source.meta["val"].dim())]
    turned = putter(graph, node)(_aten.permute.default, source, axes)
    node.args = (turned, [columns[at] for at in ordered])


def _number(graph: fx.Graph, place: fx.Node, mask: fx.Node, axis: int) -> bool:
    """Let what reads `place`, the numbers along `axis` of `mask`, select them by the mask."""
    shape = mask.meta["val"].shape
    if not shape or not all(isinstance(size, int) for size in shape):
        return False
    put = putter(graph, place)
    ones = put(_aten.new_ones.default, mask, [*shape], dtype=torch.int64)
    numbers = put(_aten.sub.Tensor, put(_aten.cumsum.default, ones, axis), 1)
    with graph.inserting_before(place):
        chosen = graph.call_function(_INDEX, (numbers, [mask]))
    chosen.meta = noted(place, val=place.meta["val"])
    place.replace_all_uses_with(chosen)
    graph.erase_node(place)
    return True


def _axis_of(place: fx.Node, maker: fx.Node) -> int | None:
    """Return which axis `place` has the numbers along, of those that `maker` gives."""
    if place.target is operator.getitem:
        return place.args[1] if isinstance(place.args[1], int) else None
    (mask,) = maker.all_input_nodes
    is_only = place.target in _ONE_COLUMN and mask.meta["val"].dim() == 1
    return 0 if is_only and _has_all(place, maker) else None


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
