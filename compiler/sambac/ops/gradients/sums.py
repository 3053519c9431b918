"""Sums and products over whole axes, in the forms that run fastest.

Rows are summed by ReduceSum along the last axis, columns by a product with a row of ones: a
reduction over a leading axis takes two to six times as long.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of


def column_sums(b: Editor, rows: ir.Value) -> ir.Value:
    """Return [D] from `rows` [N, D]: the sum of each column."""
    count, width = shape_of(rows)
    ones = np.ones((1, count), rows.dtype.numpy())  # type: ignore[union-attr]  # typed graph
    return b.op("Reshape", b.op("MatMul", ones, rows), [width])


def channel_sums(b: Editor, image: ir.Value) -> ir.Value:
    """Return [C] from `image` [N, C, *]: the sum over everything but the channel."""
    batch, channels, *sizes = shape_of(image)
    if not sizes:
        return column_sums(b, image)
    flat = b.op("Reshape", image, [batch * channels, prod(sizes)])
    sums = b.op("ReduceSum", flat, [1], keepdims=0)
    return column_sums(b, b.op("Reshape", sums, [batch, channels]))


def apply_along(b: Editor, value: ir.Value, axis: int, matrix: np.ndarray) -> ir.Value:
    """Return M v for every vector v of `value` along `axis`; M [m, n] is constant, n the size.

    An identity costs nothing; the last axis is multiplied from the right, any other from the left.
    """
    if _is_identity(matrix):
        return value
    shape = shape_of(value)
    axis %= len(shape)
    factor = matrix.astype(value.dtype.numpy())  # type: ignore[union-attr]  # typed graph
    result = [*shape[:axis], len(matrix), *shape[axis + 1 :]]
    if axis == len(shape) - 1:
        return b.op("MatMul", value, np.ascontiguousarray(factor.T))
    if axis == len(shape) - 2:
        return b.op("MatMul", b.constant(factor), value)
    merged = [prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])]
    product = b.op("MatMul", b.constant(factor), b.op("Reshape", value, merged))
    return b.op("Reshape", product, result)


def _is_identity(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    return rows == columns and bool((matrix == np.eye(rows)).all())
