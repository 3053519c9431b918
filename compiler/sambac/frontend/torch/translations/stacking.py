"""Stacks of tensors of few axes, whose inputs the exporter loses; diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, merged, op, rank, sizes, with_axes


def hstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis, or those of one axis along it."""
    parts = [_with_first(value, 1) for value in tensors]
    return op.Concat(*parts, axis=min(1, rank(parts[0]) - 1))


def vstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their first axis; those of one axis are rows."""
    return op.Concat(*(_with_first(value, 2) for value in tensors), axis=0)


def dstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their third axis, which those of fewer axes get."""
    return op.Concat(*(_with_last(_with_first(value, 2), 3) for value in tensors), axis=2)


def column_stack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis; those of one axis are columns."""
    return op.Concat(*(_with_last(value, 2) for value in tensors), axis=1)


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
    first, second = dim1 % rank(x), dim2 % rank(x)
    others = [axis for axis in range(rank(x)) if axis not in (first, second)]
    rows, columns = sizes(x, first, second)
    begin = max(-offset, 0) * columns + max(offset, 0)
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    places = begin + np.arange(count, dtype=np.int64) * (columns + 1)
    assert x.shape is not None
    assert x.dtype is not None
    last = op.Transpose(x, perm=[*others, first, second])
    last.dtype = x.dtype
    last.shape = ir.Shape([*(x.shape[axis] for axis in others), rows, columns])
    return op.Gather(merged(last, 2), constant(places), axis=len(others))
