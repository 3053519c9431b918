"""Products of groups of rows with a matrix for each group, as mixtures of experts compute them.

Sizes of groups depend on values, those of a program may not. So the rows of each group are cut into
blocks of a fixed height, the last of which is filled up with any rows, and each block is multiplied
with the matrix of its group. With blocks as high as groups are on the average there are at most
twice as many as groups.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import ArrayLike

from .operators import Size, constant, converted, counted, lengths, number, op, rank, size, sizes


def grouped_products(
    x: ir.Value,
    weight: ir.Value,
    offs: ir.Value | None = None,
    bias: ir.Value | None = None,
    out_dtype: int | None = None,
) -> ir.Value:
    """Return x[s] @ weight[g], where row s is in group g, and 0 for rows behind the last group.

    Shapes: `x` [S, K], `weight` [G, K, N], `offs` [G], whole numbers that tell where groups end.
    Raises `NotImplementedError` for other products in groups.
    """
    if offs is None or bias is not None or out_dtype is not None:
        raise NotImplementedError("products in groups without ends, or with more than operands")
    if (rank(x), rank(weight)) != (2, 3):
        raise NotImplementedError("products in groups are of shapes [S, K] and [G, K, N]")
    groups, _, width = sizes(weight)
    rows = size(x, 0)
    height, count = _blocks(rows, groups)
    ends = converted(offs, ir.DataType.INT64)
    starts = op.Concat(_whole([0]), op.Slice(ends, _whole([0]), _whole([-1])), axis=0)
    blocks = op.Div(op.Add(op.Sub(ends, starts), _whole(height - 1)), _whole(height))
    last = op.CumSum(blocks, _whole(0))
    shift = op.Sub(starts, op.Mul(op.Sub(last, blocks), _whole(height)))  # of rows from blocks

    block = counted(count)
    group = _group(block, last, groups)
    top = op.Add(op.Mul(block, _whole(height)), op.Gather(shift, group))
    read = op.Add(op.Unsqueeze(top, _whole([1])), _whole(np.arange(height)))
    taken = op.Gather(x, op.Min(read, op.Sub(lengths(rows), _whole(1))))
    made = op.Reshape(op.MatMul(taken, op.Gather(weight, group)), _whole([-1, width]))

    row = counted(rows)
    at = op.Sub(row, op.Gather(shift, _group(row, ends, groups)))
    at = op.Min(at, op.Sub(op.Mul(lengths(count), _whole(height)), _whole(1)))
    inside = op.Less(row, op.Slice(ends, _whole([-1]), _whole([groups])))
    found = op.Gather(made, at)
    return op.Where(op.Unsqueeze(inside, _whole([1])), found, number(0.0, x))


def _blocks(rows: Size, groups: int) -> tuple[int, Size]:
    """Return how many rows a block has, and how many blocks hold `rows` whatever the groups are."""
    if not isinstance(rows, int):
        return 1, rows
    height = max(rows // groups, 1)
    return height, (rows + min(rows, groups) * (height - 1)) // height


def _group(at: ir.Value, ends: ir.Value, groups: int) -> ir.Value:
    """Return in which group each of the places `at` is, the last one for those behind it."""
    behind = op.GreaterOrEqual(op.Unsqueeze(at, _whole([1])), ends)
    found = op.ReduceSum(op.Cast(behind, to=ir.DataType.INT64), _whole([1]), keepdims=0)
    return op.Min(found, _whole(groups - 1))


def _whole(content: ArrayLike) -> ir.Value:
    return constant(np.asarray(content, np.int64))
