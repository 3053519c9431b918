"""Rows that a mask selects, kept at all places where in the end they are added up or go back.

    i = cat([e[:, m], l], 1)             ->  i = cat([e', l], 1), live = cat([m, true])
    s = f(x[i[0]], y[i[1]])              ->  the same, at all places
    z.scatter_add(0, i[1], s)            ->  as `row_ends` has it

for an `f` of one row at a time, as layers of graphs take out edges that a mask names, add loops,
and sum messages of edges to their nodes, and as losses are of some places. The number of rows
depends on values, which a program that trains cannot have. e' is e where the mask is true, and
elsewhere the first column that is selected: `f` and its slope are infinite nowhere where they are
not so of what is selected. What is read otherwise stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .live_rows import LiveRows, filled, inside, sloping
from .putting import putter
from .row_ends import Ending, is_end, is_ratio
from .rows import (
    CAT,
    FACTORIES,
    LOOK_UPS,
    SELECTED,
    SIZED,
    Order,
    SelectedRows,
    arguments,
    axis_of,
    has_known_sizes,
    is_of_rows,
    selects,
)

_aten = torch.ops.aten
_CHECKS = (
    _aten._assert_scalar.default,
    _aten._assert_tensor_metadata.default,
    _aten.sym_constrain_range_for_size.default,
)


def keep_rows(graph: fx.Graph, masks: Sequence[fx.Node]) -> bool:
    """Rewrite what is computed of the rows that equal `masks` select, if it can keep all rows.

    Returns whether it has.
    """
    rows = SelectedRows(masks)
    if not _find(graph, rows):
        return False
    _rewrite(graph, rows)
    return True


def _find(graph: fx.Graph, rows: SelectedRows) -> bool:
    """Find what reads `rows`; tell whether all of it can keep all of them."""
    for node in graph.nodes:
        inputs = node.all_input_nodes
        value = node.meta.get("val")
        if selects(node, rows.masks):
            axis = len(node.args[1]) - 1
            rows.symbols |= value.shape[axis].node.expr.free_symbols
            rows.axes[node], rows.orders[node] = axis, (SELECTED,)
            rows.found.append(node)
        elif any(item in rows.axes or rows.is_size(item) for item in inputs):
            if node.target in _CHECKS or isinstance(value, torch.SymBool) or rows.is_size(node):
                rows.checks.append(node)
            elif not _take(node, rows):
                return False
        elif any(item in rows.checks for item in inputs):
            if node.target not in _CHECKS:
                return False
            rows.checks.append(node)
    return bool(rows.found)


def _take(node: fx.Node, rows: SelectedRows) -> bool:
    """Take `node`, which reads rows or sizes of them, in; tell whether it is known how."""
    if not isinstance(node.meta.get("val"), torch.Tensor):
        return False
    rows.found.append(node)
    if is_ratio(node, rows):
        return True
    if not _is_plain(node, rows):
        return False
    members = rows.members(node)
    axis = rows.axis(node)
    if node.target in FACTORIES:
        if axis is not None:
            rows.axes[node], rows.orders[node] = axis, None
        return axis is not None or not any(map(rows.is_open, node.meta["val"].shape))
    if not members:
        return False
    if axis is None:
        return is_end(node, rows)
    order = rows.order(members)
    is_longer = node.target is CAT and axis_of(node) == axis
    order = _behind(node, rows) if is_longer else order
    is_known = is_longer or is_of_rows(node, rows, members, axis)
    needs_order = is_longer or any(rows.orders[item] is not None for item in members)
    if not is_known or (order is None and needs_order):
        return False
    rows.axes[node], rows.orders[node] = axis, order
    return True


def _is_plain(node: fx.Node, rows: SelectedRows) -> bool:
    """Tell whether what `node` reads beside rows has known sizes, and sizes are read as such."""
    for item in node.all_input_nodes:
        value = item.meta.get("val")
        if isinstance(value, torch.Tensor):
            if item not in rows.axes and not has_known_sizes(value):
                return False
        elif node.target not in SIZED or rows.line(value) is None:
            return False
    is_filling = node.target in FACTORIES and any(map(rows.is_size, _given(node)))
    return not is_filling


def _given(node: fx.Node) -> list[fx.Node]:
    """Return what `node` is given by itself, beside what lists hold."""
    return [item for item in (*node.args, *node.kwargs.values()) if isinstance(item, fx.Node)]


def _behind(node: fx.Node, rows: SelectedRows) -> Order | None:
    """Return the order of what `node` puts behind each other, None if it is not known."""
    order: list[int] = []
    for part in arguments(node)[0]:
        size = part.meta["val"].shape[axis_of(node)]
        known = rows.orders.get(part) or _of_alike(rows.line(size))
        if known is None:
            return None
        order += known
    return tuple(order)


def _of_alike(line: tuple[int, int] | None) -> Order | None:
    """Return the order of rows that are all the same, as many as `line` has of those selected."""
    selected, more = line or (0, 0)
    if not selected:
        return (more,) if line else None
    return (SELECTED,) if line == (1, 0) else None


def _rewrite(graph: fx.Graph, rows: SelectedRows) -> None:
    """Put operators of all rows where those of the rows that are selected are."""
    whole: dict[fx.Node, Any] = {}
    lives = LiveRows(rows, {}, {})
    for node in rows.found:
        put = putter(graph, node)
        args: Any
        args, kwargs = fx.map_arg(
            (node.args, node.kwargs),
            lambda n: rows.number(n.meta["val"]) if rows.is_size(n) else whole.get(n, n),
        )
        if selects(node, rows.masks):
            whole[node] = filled(put, node, lives)
        elif node in rows.axes:
            if node.target in (*LOOK_UPS, _aten.gather.default):
                args = inside(put, node, args, lives)
            args = sloping(put, node, args, lives)
            whole[node] = put(node.target, *args, **kwargs)
        elif node.target in FACTORIES:
            node.replace_all_uses_with(put(node.target, *args, **kwargs))
        else:
            node.replace_all_uses_with(Ending(node, args, kwargs).of_all(put, lives))
    order = {node: at for at, node in enumerate(graph.nodes)}
    for node in sorted((*rows.found, *rows.checks), key=order.__getitem__, reverse=True):
        graph.erase_node(node)
