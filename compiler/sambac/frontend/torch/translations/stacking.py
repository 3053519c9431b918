"""Stacks of tensors of few axes, whose inputs the exporter loses; diagonals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, op, reshaped, sizes


def hstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis, or those of one axis along it."""
    shapes = [sizes(value) or (1,) for value in tensors]
    return _joined(tensors, shapes, min(1, len(shapes[0]) - 1))


def vstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their first axis; those of one axis are rows."""
    return _joined(tensors, [_rows(sizes(value)) for value in tensors], 0)


def dstack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their third axis, which those of fewer axes get."""
    shapes = [_rows(sizes(value)) for value in tensors]
    return _joined(tensors, [(*s, 1) if len(s) == 2 else s for s in shapes], 2)


def column_stack(tensors: Sequence[ir.Value]) -> ir.Value:
    """Join tensors along their second axis; those of one axis are columns."""
    shapes = [sizes(value) or (1,) for value in tensors]
    return _joined(tensors, [(*s, 1) if len(s) == 1 else s for s in shapes], 1)


def _rows(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) > 1 else (1, *(shape or (1,)))


def _joined(tensors: Sequence[ir.Value], shapes: Sequence[tuple[int, ...]], axis: int) -> ir.Value:
    """Return `tensors` in `shapes`, joined along `axis`."""
    parts = [
        value if sizes(value) == shape else reshaped(value, shape)
        for value, shape in zip(tensors, shapes, strict=True)
    ]
    return op.Concat(*parts, axis=axis)


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
    shape = sizes(x)
    first, second = dim1 % len(shape), dim2 % len(shape)
    others = [axis for axis in range(len(shape)) if axis not in (first, second)]
    rows, columns = shape[first], shape[second]
    begin = max(-offset, 0) * columns + max(offset, 0)
    count = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    places = begin + np.arange(count, dtype=np.int64) * (columns + 1)
    last = op.Transpose(x, perm=[*others, first, second])
    flat = reshaped(last, (*(shape[axis] for axis in others), rows * columns))
    return op.Gather(flat, constant(places), axis=len(others))
