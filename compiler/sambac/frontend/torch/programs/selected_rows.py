"""Rows that a mask selects, kept at all places where they are added up by indices in the end.

    i = cat([e[:, m], l], 1)             ->  i = cat([e', l], 1), live = cat([m, true])
    s = f(x[i[0]], y[i[1]])              ->  the same, at all places
    z.scatter_add(0, i[1], s)            ->  cat([z, 0]).scatter_add(0, where(live, i[1], n), s)[:n]

for an `f` of one row at a time, as layers of graphs take out edges that a mask names, add loops,
and sum messages of edges to their nodes. The number of rows depends on values, which a program
that trains cannot have. e' is e where the mask is true, and elsewhere the first column that is
selected: `f` and its slope are infinite nowhere where they are not so of what is selected. What is
not selected goes to a row behind the last, which is cut off. What is read otherwise stays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import fx

from .writes import noted

_aten = torch.ops.aten
_INDEX, _CAT = _aten.index.Tensor, _aten.cat.default
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
_MOVES = (
    _aten._to_copy.default,
    _aten.alias.default,
    _aten.clone.default,
    _aten.detach.default,
    _aten.dropout.default,
    _aten.expand.default,
    _aten.permute.default,
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.squeeze.dim,
    _aten.transpose.int,
    _aten.unsqueeze.default,
)
_ACROSS = (
    _aten.amax.default,
    _aten.amin.default,
    _aten.mean.dim,
    _aten.softmax.int,
    _aten.sum.dim_IntList,
)
"""Operators along other axes, which their second argument names."""
_FACTORIES = (
    _aten.full.default,
    _aten.new_ones.default,
    _aten.new_zeros.default,
    _aten.ones.default,
    _aten.ones_like.default,
    _aten.zeros.default,
    _aten.zeros_like.default,
)
_ADDS = (_aten.index_add.default, _aten.scatter_add.default, _aten.scatter_reduce.two)
_CHECKS = (
    _aten._assert_scalar.default,
    _aten._assert_tensor_metadata.default,
    _aten.sym_constrain_range_for_size.default,
)
_SIZED = (*_VIEWS, *_FACTORIES, _aten.expand.default, _aten.slice.Tensor)
"""Operators whose arguments may be sizes that masks decide."""
_SIZES = (operator.add, operator.mul, operator.sub, _aten.sym_size.int)
_SELECTED = -1
"""Stands for what the mask selects among numbers of rows."""
_Order = tuple[int, ...]
Put = Callable[..., fx.Node]
"""Puts an operator somewhere in a graph, with its operands."""


@dataclass
class _SelectedRows:
    """What is computed of the rows that equal `masks` select: `orders` of parts, `axes` of rows.

    An order of None is that of rows that are all the same.
    """

    masks: Sequence[fx.Node]
    symbols: set[object] = field(default_factory=set)
    axes: dict[fx.Node, int] = field(default_factory=dict)
    orders: dict[fx.Node, _Order | None] = field(default_factory=dict)
    found: list[fx.Node] = field(default_factory=list)
    checks: list[fx.Node] = field(default_factory=list)

    def is_open(self, size: object) -> bool:
        """Tell whether `size` is one that the masks decide."""
        return isinstance(size, torch.SymInt) and bool(self.symbols & size.node.expr.free_symbols)

    def number(self, size: Any) -> Any:
        """Return `size` where all rows are kept."""
        if not self.is_open(size):
            return size
        length = self.masks[0].meta["val"].shape[0]
        return int(size.node.expr.xreplace(dict.fromkeys(self.symbols, length)))

    def axis(self, node: fx.Node) -> int | None:
        """Return the one axis of `node` whose size the masks decide."""
        axes = [at for at, size in enumerate(node.meta["val"].shape) if self.is_open(size)]
        return axes[0] if len(axes) == 1 else None


def keep_rows(graph: fx.Graph, masks: Sequence[fx.Node]) -> None:
    """Rewrite what is computed of the rows that equal `masks` select, if it can keep all rows."""
    rows = _SelectedRows(masks)
    if _find(graph, rows):
        _rewrite(graph, rows)


def _find(graph: fx.Graph, rows: _SelectedRows) -> bool:
    """Find what reads `rows`; tell whether all of it can keep all of them."""
    for node in graph.nodes:
        inputs = node.all_input_nodes
        value = node.meta.get("val")
        if _selects(node, rows.masks):
            axis = len(node.args[1]) - 1
            rows.symbols |= value.shape[axis].node.expr.free_symbols
            rows.axes[node], rows.orders[node] = axis, (_SELECTED,)
            rows.found.append(node)
        elif any(item in rows.axes or _is_size(item, rows) for item in inputs):
            if node.target in _CHECKS or isinstance(value, torch.SymBool):
                rows.checks.append(node)
            elif _is_size(node, rows):
                if node.target not in _SIZES:
                    return False
                rows.checks.append(node)
            elif not _take(node, rows):
                return False
        elif any(item in rows.checks for item in inputs):
            if node.target not in _CHECKS:
                return False
            rows.checks.append(node)
    return bool(rows.found)


def _selects(node: fx.Node, masks: Sequence[fx.Node]) -> bool:
    """Tell whether `node` selects along one axis of a tensor of known sizes, by one of `masks`."""
    if node.target is not _INDEX or not isinstance(node.args[1], list):
        return False
    *others, last = node.args[1]
    if not isinstance(last, fx.Node):
        return False
    source: torch.Tensor = _arguments(node)[0].meta["val"]
    return (
        last in masks
        and not any(others)
        and last.meta["val"].dim() == 1
        and 0 not in source.shape
        and _has_known_sizes(source)
    )


def _is_size(node: fx.Node, rows: _SelectedRows) -> bool:
    return rows.is_open(node.meta.get("val"))


def _take(node: fx.Node, rows: _SelectedRows) -> bool:
    """Take `node`, which reads rows or sizes of them, in; tell whether it is known how."""
    if not isinstance(node.meta.get("val"), torch.Tensor) or not _is_plain(node, rows):
        return False
    rows.found.append(node)
    members = [item for item in node.all_input_nodes if item in rows.axes]
    axis = rows.axis(node)
    if node.target in _FACTORIES:
        if axis is not None:
            rows.axes[node], rows.orders[node] = axis, None
        return axis is not None or not any(map(rows.is_open, node.meta["val"].shape))
    if not members:
        return False
    order = _joined(rows, members)
    if node.target in _ADDS:
        return order is not None and _adds(node, rows)
    if axis is None:
        return False
    if node.target is _CAT and _axis_of(node) == axis:
        order = _behind(node, rows)
    elif not _is_of_rows(node, rows, members, axis) or (
        order is None and any(rows.orders[item] is not None for item in members)
    ):
        return False
    rows.axes[node], rows.orders[node] = axis, order
    return True


def _is_plain(node: fx.Node, rows: _SelectedRows) -> bool:
    """Tell whether what `node` reads beside rows has known sizes, and sizes are read as such."""
    for item in node.all_input_nodes:
        value = item.meta.get("val")
        if isinstance(value, torch.Tensor):
            if item not in rows.axes and not _has_known_sizes(value):
                return False
        elif node.target not in _SIZED or (node.target is _aten.full.default and item in node.args):
            return False
    return True


def _has_known_sizes(value: torch.Tensor) -> bool:
    return all(isinstance(size, int) for size in value.shape)


def _joined(rows: _SelectedRows, members: Sequence[fx.Node]) -> _Order | None:
    """Return the order of rows that `members` have, None if they are alike or differ in it."""
    orders = {rows.orders[item] for item in members} - {None}
    return orders.pop() if len(orders) == 1 else None


def _arguments(node: fx.Node) -> list[Any]:
    return [*node.args]


def _axis_of(node: fx.Node) -> int:
    """Return the axis that the second argument of `node` names, counted from the first."""
    axis = _arguments(node)[1] if len(node.args) > 1 else 0
    return int(axis % node.meta["val"].dim())


def _behind(node: fx.Node, rows: _SelectedRows) -> _Order | None:
    """Return the order of what `node` puts behind each other, None if it is not known."""
    order: list[int] = []
    for part in _arguments(node)[0]:
        size = part.meta["val"].shape[_axis_of(node)]
        known = rows.orders.get(part, (size,) if isinstance(size, int) else None)
        if known is None:
            return None
        order += known
    return tuple(order)


def _adds(node: fx.Node, rows: _SelectedRows) -> bool:
    """Tell whether `node` adds rows up, by indices that are rows, to a tensor of known sizes."""
    target, _, index, source = _arguments(node)[:4]
    axis = _axis_of(node)
    of_index = axis if index.meta["val"].dim() > 1 else 0
    return (
        target not in rows.axes
        and rows.axes.get(source) == axis
        and rows.axes.get(index) == of_index
        and str(index.meta["val"].shape[of_index]) == str(source.meta["val"].shape[axis])
        and _has_known_sizes(node.meta["val"])
    )


def _is_of_rows(node: fx.Node, rows: _SelectedRows, members: Sequence[fx.Node], axis: int) -> bool:
    """Tell whether `node` computes each row along `axis` from the same row of `members` alone."""
    target, shape = node.target, node.meta["val"].shape
    first, given = members[0], members[0].meta["val"].shape
    same = str(given[rows.axes[first]]) == str(shape[axis])
    if target in _VIEWS:
        return same and prod(shape[:axis]) == prod(given[: rows.axes[first]])
    if target in _MOVES:
        return same
    if target in _ACROSS:
        named = _arguments(node)[1]
        dims = named if isinstance(named, (list, tuple)) else [named]
        return same and rows.axes[first] not in [dim % len(given) for dim in dims]
    if target is _aten.linear.default:
        return same and members == [node.args[0]] and axis < len(shape) - 1
    if target in (_aten.index_select.default, _INDEX):
        return _looks_up(node, rows, members, axis)
    if target is _CAT:
        return all(rows.axes.get(part) == axis for part in _arguments(node)[0])
    if not isinstance(target, torch._ops.OpOverload) or torch.Tag.pointwise not in target.tags:
        return False
    behind = {item.meta["val"].dim() - rows.axes[item] for item in members}
    return behind == {len(shape) - axis} and torch.Tag.nondeterministic_seeded not in target.tags


def _looks_up(node: fx.Node, rows: _SelectedRows, members: Sequence[fx.Node], axis: int) -> bool:
    """Tell whether `node` reads by indices that are rows from a tensor of known sizes."""
    *others, index = _arguments(node)[1] if node.target is _INDEX else [_arguments(node)[2]]
    return (
        not any(others)
        and list(members) == [index]
        and rows.orders[index] is not None
        and index.meta["val"].dim() == 1
        and not index.meta["val"].is_floating_point()
        and index.meta["val"].dtype is not torch.bool
    )


def _rewrite(graph: fx.Graph, rows: _SelectedRows) -> None:
    """Put operators of all rows where those of the rows that are selected are."""
    whole: dict[fx.Node, Any] = {}
    lives = _Selected(rows, {}, {})
    for node in rows.found:
        put = putter(graph, node)
        args: Any
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs),
            lambda n: rows.number(n.meta["val"]) if _is_size(n, rows) else whole.get(n, n),
        )
        if _selects(node, rows.masks):
            whole[node] = _filled(put, node, lives)
        elif node.target in _ADDS:
            node.replace_all_uses_with(_added(put, node, args, kwargs, lives))
        elif node not in rows.axes:
            node.replace_all_uses_with(put(node.target, *args, **kwargs))
        else:
            if node.target in (_aten.index_select.default, _INDEX):
                args = _inside(put, node, args, lives)
            whole[node] = put(node.target, *args, **kwargs)
    order = {node: at for at, node in enumerate(graph.nodes)}
    for node in sorted((*rows.found, *rows.checks), key=order.__getitem__, reverse=True):
        graph.erase_node(node)


def putter(graph: fx.Graph, before: fx.Node) -> Put:
    """Return what puts an operator in front of a node, of which it has the place."""

    def put(target: Callable[..., object], *args: Any, **kwargs: Any) -> fx.Node:
        with graph.inserting_before(before):
            node = graph.call_function(target, args, kwargs)
        given, named = fx.map_arg((args, kwargs), lambda item: item.meta["val"])
        node.meta = noted(before, val=target(*given, **named))
        return node

    return put


@dataclass(frozen=True)
class _Selected:
    """Which rows are selected, by their order; what is known of the mask once it is asked."""

    rows: _SelectedRows
    known: dict[_Order, fx.Node]
    of_mask: dict[str, fx.Node]

    def of(self, put: Put, *nodes: Any) -> fx.Node:
        """Return which rows of `nodes`, which have them in one order, are selected."""
        order = _joined(self.rows, nodes)
        assert order is not None
        if order not in self.known:
            mask = self.rows.masks[0]
            parts = [
                mask if size == _SELECTED else put(_aten.new_ones.default, mask, [size])
                for size in order
            ]
            self.known[order] = put(_CAT, parts) if len(parts) > 1 else mask
        return self.known[order]

    def first(self, put: Put) -> tuple[fx.Node, fx.Node]:
        """Return the place of the first row that the mask selects, and whether there is one."""
        if not self.of_mask:
            mask = self.rows.masks[0]
            number = put(_aten._to_copy.default, mask, dtype=torch.int32)
            self.of_mask["place"] = put(_aten.argmax.default, number, 0, True)
            self.of_mask["is_there"] = put(_aten.any.default, mask)
        return self.of_mask["place"], self.of_mask["is_there"]


def _along(put: Put, live: fx.Node, axis: int, rank: int) -> fx.Node:
    """Return `live` along `axis` of `rank` axes."""
    return put(_aten.reshape.default, live, [1] * axis + [-1] + [1] * (rank - axis - 1))


def _filled(put: Put, node: fx.Node, lives: _Selected) -> fx.Node:
    """Return what `node` selects from, with its first selected row where it selects none."""
    source, axis = node.args[0], lives.rows.axes[node]
    assert isinstance(source, fx.Node)
    place, is_there = lives.first(put)
    row = put(_aten.index_select.default, put(_aten.detach.default, source), axis, place)
    filling = put(_aten.where.self, is_there, row, put(_aten.ones_like.default, row))
    live = _along(put, lives.rows.masks[0], axis, source.meta["val"].dim())
    return put(_aten.where.self, live, source, filling)


def _inside(put: Put, node: fx.Node, args: Sequence[Any], lives: _Selected) -> Sequence[Any]:
    """Return the arguments of a look-up, whose indices exist where nothing is selected, too."""
    index = node.all_input_nodes[-1]
    *others, wanted = args
    at = wanted[-1] if node.target is _INDEX else wanted
    is_meant = put(_aten.logical_or.default, lives.of(put, index), lives.first(put)[1])
    at = put(_aten.where.ScalarOther, is_meant, at, 0)
    return [*others, [*wanted[:-1], at] if node.target is _INDEX else at]


def _added(
    put: Put, node: fx.Node, args: Sequence[Any], kwargs: Mapping[str, Any], lives: _Selected
) -> fx.Node:
    """Return what `node` adds up, of the rows that are selected."""
    target, _, index, source, *others = args
    axis = _axis_of(node)
    size = target.meta["val"].shape[axis]
    more = [*target.meta["val"].shape[:axis], 1, *target.meta["val"].shape[axis + 1 :]]
    longer = put(_CAT, [target, put(_aten.new_zeros.default, target, more)], axis)
    live = lives.of(put, *node.args[2:4])
    rank = index.meta["val"].dim()
    live = _along(put, live, axis if rank > 1 else 0, rank)
    places = put(_aten.where.ScalarOther, live, index, size)
    summed = put(node.target, longer, axis, places, source, *others, **kwargs)
    return put(_aten.slice.Tensor, summed, axis, 0, size)
