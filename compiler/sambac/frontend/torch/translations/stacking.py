"""Stacks of tensors of few axes, whose translations by the exporter lose their inputs; traces."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, op, sizes


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
        value if sizes(value) == shape else op.Reshape(value, constant(np.asarray(shape, np.int64)))
        for value, shape in zip(tensors, shapes, strict=True)
    ]
    return op.Concat(*parts, axis=axis)


def trace(x: ir.Value) -> ir.Value:
    """Return the sum of the diagonal of a matrix, which may be empty."""
    rows, columns = sizes(x)
    places = np.arange(min(rows, columns), dtype=np.int64) * (columns + 1)
    diagonal = op.Gather(op.Reshape(x, [-1]), constant(places))
    return op.ReduceSum(diagonal if len(places) else x, keepdims=0)
