"""Stacks of tensors, whose types and first axes the exporter loses; diagonals, read and written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from .operators import alike, constant, lengths, merged, op, rank, size, sizes, typed, with_axes
from .scatter import index_put


def stack(tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    """Join tensors along a new axis `dim`."""
    return op.Concat(*(op.Unsqueeze(value, [dim]) for value in alike(tensors)), axis=dim)


def cat(tensors: Sequence[ir.Value], dim: int = 0) -> ir.Value:
    """Join tensors along the axis `dim`; those of one axis without elements are no part of it."""
    parts = alike(tensors)
    filled = [part for part, given in zip(parts, tensors, strict=True) if given.shape != (0,)]
    return op.Concat(*filled, axis=dim) if len(filled) > 1 else op.Identity((filled or parts)[0])


def hstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis, or those of one axis along it."""
    parts = alike([_with_first(value, 1) for value in tensors])
    return op.Concat(*parts, axis=min(1, rank(parts[0]) - 1))


def vstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their first axis; those of one axis are rows."""
    return op.Concat(*alike([_with_first(value, 2) for value in tensors]), axis=0)


def dstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their third axis, which those of fewer axes get."""
    return op.Concat(*alike([_with_last(_with_first(v, 2), 3) for v in tensors]), axis=2)


def column_stack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis; those of one axis are columns."""
    return op.Concat(*alike([_with_last(value, 2) for value in tensors]), axis=1)


def at_least(axes: int) -> Callable[[Sequence[ir.Value]], tuple[ir.Value, ...]]:
    """Return the translation of `atleast_1d`, `atleast_2d` or `atleast_3d` of several tensors."""

    def translate(tensors: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
        rows = [_with_first(value, min(axes, 2)) for value in tensors]
        return tuple(op.Identity(_with_last(value, axes)) for value in rows)

    return translate


def squeeze(x: ir.Value, dim: int | Sequence[int]) -> ir.Value:
    """Return `x` without those of the axes `dim` that have one element; others stay."""
    named = [dim] if isinstance(dim, int) else dim
    assert x.shape is not None
    single = sorted({axis % rank(x) for axis in named if rank(x) and x.shape[axis] == 1})
    return op.Squeeze(x, constant(np.asarray(single, np.int64))) if single else op.Identity(x)


def _with_first(value: ir.Value, axes: int) -> ir.Value:
    """Return `value` with at least so many axes, new ones before its own."""
    return with_axes(value, max(axes - rank(value), 0))


def _with_last(value: ir.Value, axes: int) -> ir.Value:
    """Return `value` with at least so many axes, new ones behind its own."""
    missing = axes - rank(value)
    if missing <= 0:
        return value
    assert value.shape is not None
    assert value.dtype is not None
    result = op.Unsqueeze(value, list(range(rank(value), axes)))
    result.dtype, result.shape = value.dtype, ir.Shape((*value.shape, *([1] * missing)))
    return result


def trace(x: ir.Value) -> ir.Value:
    """Return the sum of the diagonal of a matrix, which may be empty."""
    rows, columns = sizes(x)
    places = np.arange(min(rows, columns), dtype=np.int64) * (columns + 1)
    diagonal = op.Gather(op.Reshape(x, [-1]), constant(places))
    return op.ReduceSum(diagonal if len(places) else x, keepdims=0)


def diagonal(x: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> ir.Value:
    """Return the elements of `x` on a diagonal of two axes, along a new last axis.

    They are picked: the exporter's product with an identity has no number beside an infinity.
    """
    last, order = _with_last_axes(x, dim1, dim2)
    return op.Gather(merged(last, 2), _places(last, offset), axis=len(order) - 2)


def diagonal_scatter(
    x: ir.Value, src: ir.Value, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> ir.Value:
    """Return `x` with the elements of `src` on a diagonal of two axes: what a write to it leaves.

    `src` has the shape that `diagonal` gives.
    """
    last, order = _with_last_axes(x, dim1, dim2)
    outer = [None] * (len(order) - 2)
    written = index_put(merged(last, 2), [*outer, _places(last, offset)], src)
    shape = lengths(*(size(last, axis) for axis in range(len(order))))
    whole = op.Reshape(written, shape, allowzero=1)
    back = [order.index(axis) for axis in range(len(order))]
    return typed(op.Transpose(whole, perm=back), x)


def _with_last_axes(x: ir.Value, dim1: int, dim2: int) -> tuple[ir.Value, list[int]]:
    """Return `x` with two axes behind all others, and which of its axes each is."""
    first, second = dim1 % rank(x), dim2 % rank(x)
    order = [axis for axis in range(rank(x)) if axis not in (first, second)] + [first, second]
    assert x.shape is not None
    assert x.dtype is not None
    last = op.Transpose(x, perm=order)
    last.dtype, last.shape = x.dtype, ir.Shape([x.shape[axis] for axis in order])
    return last, order


def _places(matrices: ir.Value, offset: int) -> ir.Value:
    """Return where a diagonal of the last two axes lies if these are one."""
    rows, columns = sizes(matrices, -2, -1)
    begin = max(-offset, 0) * columns + max(offset, 0)
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    return constant(begin + np.arange(count, dtype=np.int64) * (columns + 1))
