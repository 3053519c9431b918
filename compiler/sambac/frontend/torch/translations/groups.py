"""Products of rows in groups, each with a matrix of its own: how experts are computed.

    y[i] = x[i] @ weight[e]     offsets[e - 1] <= i < offsets[e]

Shapes: `x` [S, K], `weight` [E, K, N], `offsets` [E] where groups end, which ascend; y [S, N] has
zeros behind the last group.

How many rows a group has depends on values. At inference x is cut where groups end: the arithmetic
is that of S rows, and no matrix is copied. In training all sizes have to be known. So the rows of
each group are cut into blocks of a fixed height, the last of which is filled up with any rows, and
each block is multiplied with the matrix of its group. With blocks as high as groups are on the
average there are at most twice as many as groups.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from .operators import constant, counted, number, op, rank, several, sizes


def of_torch(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate` for what PyTorch itself has."""

    def call(
        x: ir.Value,
        weight: ir.Value,
        offsets: ir.Value | None = None,
        bias: ir.Value | None = None,
        out_dtype: int | None = None,
    ) -> ir.Value:
        if offsets is None or (rank(x), rank(weight)) != (2, 3) or bias is not None:
            raise NotImplementedError("grouped_mm of other than rows [S, K] in groups by offs")
        found = translate(x, weight, offsets)
        return found if out_dtype is None else op.Cast(found, to=out_dtype)

    return call


def in_parts(x: ir.Value, weight: ir.Value, offsets: ir.Value) -> ir.Value:
    """Return the products of the parts of `x`, one behind the other."""
    groups, _, columns = sizes(weight)
    ends, rows, first = _whole_numbers(offsets), op.Shape(x, start=0, end=1), _whole([0])
    inner = (op.Slice(ends, _whole([at]), _whole([at + 1])) for at in range(groups))
    *parts, rest = (op.Slice(x, *limits, first) for limits in pairwise((first, *inner, rows)))
    matrices = several.Split(weight, axis=0, num_outputs=groups) if groups > 1 else [weight]
    products = map(op.MatMul, parts, (op.Squeeze(one, first) for one in matrices))
    left = op.Concat(op.Shape(rest, start=0, end=1), _whole([columns]), axis=0)
    joined = op.Concat(*products, op.Expand(number(0.0, x), left), axis=0)
    return op.Reshape(joined, op.Concat(rows, _whole([columns]), axis=0))


def in_blocks(x: ir.Value, weight: ir.Value, offsets: ir.Value) -> ir.Value:
    """Return the products of blocks of rows, at the places of the rows."""
    groups, _, width = sizes(weight)
    (rows,) = sizes(x, 0)
    height = max(rows // groups, 1)
    count = (rows + min(rows, groups) * (height - 1)) // height  # so many are enough for any groups
    ends = _whole_numbers(offsets)
    starts = op.Concat(_whole([0]), op.Slice(ends, _whole([0]), _whole([-1])), axis=0)
    blocks = op.Div(op.Add(op.Sub(ends, starts), _whole(height - 1)), _whole(height))
    last = op.CumSum(blocks, _whole(0))
    shift = op.Sub(starts, op.Mul(op.Sub(last, blocks), _whole(height)))  # of rows from blocks

    block = counted(count)
    group = _group(block, last, groups)
    top = op.Add(op.Mul(block, _whole(height)), op.Gather(shift, group))
    read = op.Add(op.Unsqueeze(top, _whole([1])), _whole(np.arange(height)))
    taken = op.Gather(x, op.Min(read, _whole(rows - 1)))
    made = op.Reshape(op.MatMul(taken, op.Gather(weight, group)), _whole([-1, width]))

    row = counted(rows)
    at = op.Sub(row, op.Gather(shift, _group(row, ends, groups)))
    found = op.Gather(made, op.Min(at, _whole(count * height - 1)))
    inside = op.Less(row, op.Slice(ends, _whole([-1]), _whole([groups])))
    return op.Where(op.Unsqueeze(inside, _whole([1])), found, number(0.0, x))


def _group(at: ir.Value, ends: ir.Value, groups: int) -> ir.Value:
    """Return in which group each of the places `at` is, the last one for those behind it."""
    behind = op.GreaterOrEqual(op.Unsqueeze(at, _whole([1])), ends)
    found = op.ReduceSum(_whole_numbers(behind), _whole([1]), keepdims=0)
    return op.Min(found, _whole(groups - 1))


def _whole_numbers(value: ir.Value) -> ir.Value:
    return op.Cast(value, to=ir.DataType.INT64)


def _whole(content: ArrayLike) -> ir.Value:
    return constant(np.asarray(content, np.int64))
