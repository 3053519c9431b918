"""Gradients of operators that read at given indices.

x is the input, y the result, dy the gradient of y.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute
from sambac.ops.family import GradientRule, InputGradient, Joinable

from .row_sums import sum_along, wide
from .rules import Point, constant_of, incoming, operand, replayed, reshape, unary


@dataclass(frozen=True)
class _Lookup:
    """What was read along one axis: `index` [N], `rows` with N elements along that axis."""

    index: ir.Value
    rows: ir.Value


def _lookup(
    b: Editor, at: Point, axis: int, count: int, part: Callable[[], _Lookup]
) -> InputGradient:
    """Return the gradient of x, read along `axis`, of which there are `count` elements.

    Of several lookups the rows are summed at once, so that a table of gradients is made once. That
    pays where one has no more rows than the table: else there is more to copy than to add.
    """
    index, shape = operand(at.node, 1), shape_of(at.x)

    def join(parts: Sequence[_Lookup]) -> ir.Value:
        if len(parts) == 1:
            return reshape(b, sum_along(b, parts[0].index, parts[0].rows, axis, count), shape)
        indices = [wide(b, each.index) for each in parts]
        rows = b.op("Concat", *(each.rows for each in parts), axis=axis)
        return reshape(b, sum_along(b, b.op("Concat", *indices, axis=0), rows, axis, count), shape)

    alone = constant_of(index) is not None or prod(shape_of(at.dy)) > prod(shape)
    joined = Joinable((axis, count), part, join)
    return joined.__call__ if alone else joined


def _gathered(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx[i] = the sum of all dy[j] with index[j] = i, along one axis."""
    at = Point(node, incoming(node, gradients))
    shape, index = shape_of(at.x), operand(node, 1)
    axis = int_attribute(node, "axis") % len(shape)
    size = prod(shape_of(index))

    def part() -> _Lookup:
        rows = reshape(b, at.dy, (*shape[:axis], size, *shape[axis + 1 :]))
        return _Lookup(_flat(b, index), rows)

    return [_lookup(b, at, axis, shape[axis], part)]


def _flat(b: Editor, index: ir.Value) -> ir.Value:
    """Return `index` as [N], a constant where it is one: what is known of it saves the sum."""
    known = constant_of(index)
    if known is not None:
        return b.constant(known.reshape(-1))
    return reshape(b, index, (prod(shape_of(index)),))


def _gathered_elements(b: Editor, at: Point) -> ir.Value:
    """dx[index[j], k] = the sum of all such dy[j, k], along one axis."""
    axis = int_attribute(at.node, "axis")
    table = b.zeros(at.x)
    return b.op("ScatterElements", table, operand(at.node, 1), at.dy, axis=axis, reduction="add")


def _gathered_nd(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx[i] = the sum of all dy[j] with index[j] = i, an index being a tuple of leading axes."""
    at = Point(node, incoming(node, gradients))
    batch = int_attribute(node, "batch_dims")
    index, shape = operand(node, 1), shape_of(at.x)
    lead = batch + shape_of(index)[-1]

    def part() -> _Lookup:
        rows = reshape(b, at.dy, (prod(shape_of(index)[:-1]), *shape[lead:]))
        return _Lookup(flat_places(b, index, shape, batch), rows)

    return [_lookup(b, at, 0, prod(shape[:lead]), part)]


def flat_places(b: Editor, index: ir.Value, shape: Sequence[int], batch: int = 0) -> ir.Value:
    """Return int64 [N]: where the tuples of a GatherND or ScatterND lie in the flattened axes.

    `index` is [..., K]; its first `batch` axes are those of `shape`, of which it indexes the next
    K axes.
    """
    *outer, depth = shape_of(index)
    sizes = np.array(shape[batch : batch + depth], np.int64)
    strides = np.array([prod(sizes[i + 1 :]) for i in range(depth)], np.int64)
    each = prod(outer[batch:])
    starts = np.repeat(np.arange(prod(outer[:batch])) * prod(sizes), each)
    known = constant_of(index)
    if known is not None:
        return b.constant(((known % sizes) * strides).sum(-1).reshape(-1) + starts)
    steps = b.op("Mod", index, sizes)
    if depth > 1:
        steps = b.op("ReduceSum", b.op("Mul", steps, strides), [-1], keepdims=0)
    places = reshape(b, steps, (len(starts),))
    return b.op("Add", places, starts) if batch else places


def _one_hot(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = off everywhere but on at the index: doff, don = the sums of dy there."""
    dy = incoming(node, gradients)
    index, depth, values = (operand(node, i) for i in range(3))
    axis = int_attribute(node, "axis", -1)

    def share(off: int, on: int) -> ir.Value:
        assert values.dtype is not None
        content = np.array([off, on], values.dtype.numpy())
        mask = b.op("OneHot", index, depth, content, axis=axis)
        return reshape(b, b.op("ReduceSum", b.op("Mul", dy, mask), keepdims=0), (1,))

    return [None, None, lambda: b.op("Concat", share(1, 0), share(0, 1), axis=0)]


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "Compress": unary(replayed),
    "Gather": _gathered,
    "GatherElements": unary(_gathered_elements),
    "GatherND": _gathered_nd,
    "OneHot": _one_hot,
    "com.microsoft.GatherND": _gathered_nd,
})  # fmt: skip
