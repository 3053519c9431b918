"""Products of rows in groups, each with a matrix of its own: how experts are computed.

    y[i] = x[i] @ weight[e]     offsets[e - 1] <= i < offsets[e]

Shapes: `x` [S, K], `weight` [E, K, N], `offsets` [E] where groups end, which ascend; y [S, N] has
zeros behind the last group.

At inference x is cut where groups end: the arithmetic is that of S rows. In training, where all
sizes have to be known, each matrix multiplies all rows, with zeros for those of other groups: the
arithmetic of E * S rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from itertools import pairwise

import numpy as np
import onnx_ir as ir

from .operators import constant, number, op, rank, several, sizes


def in_parts(x: ir.Value, weight: ir.Value, offsets: ir.Value) -> ir.Value:
    """Return the products of the parts of `x`, one behind the other."""
    groups, _, columns = sizes(weight)
    rows, first = op.Shape(x, start=0, end=1), _whole(0)
    limits = [first, *(_at(offsets, group) for group in range(groups)), rows]
    *parts, rest = (op.Slice(x, begin, end, first) for begin, end in pairwise(limits))
    products = map(op.MatMul, parts, _matrices(weight, groups))
    left = op.Concat(op.Shape(rest, start=0, end=1), _whole(columns), axis=0)
    joined = op.Concat(*products, op.Expand(number(0.0, x), left), axis=0)
    return op.Reshape(joined, op.Concat(rows, _whole(columns), axis=0))


def of_all_rows(x: ir.Value, weight: ir.Value, offsets: ir.Value) -> ir.Value:
    """Return the sum of the products of all rows, with zeros for those of other groups."""
    groups, _, _ = sizes(weight)
    (rows,) = sizes(x, 0)
    places = constant(np.arange(rows)[:, np.newaxis])
    limits = [_whole(0), *(_at(offsets, group) for group in range(groups))]
    masks = (
        op.And(op.LessOrEqual(begin, places), op.Less(places, end))
        for begin, end in pairwise(limits)
    )
    parts = (op.Where(mask, x, number(0.0, x)) for mask in masks)
    return reduce(op.Add, map(op.MatMul, parts, _matrices(weight, groups)))


def torch_groups(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate` for what PyTorch itself has."""

    def call(
        x: ir.Value,
        weight: ir.Value,
        offsets: ir.Value | None = None,
        bias: ir.Value | None = None,
        out_dtype: int | None = None,
    ) -> ir.Value:
        if offsets is None or rank(x) != 2 or rank(weight) != 3 or bias is not None:
            raise NotImplementedError("grouped_mm of other than rows [S, K] in groups by offs")
        found = translate(x, weight, offsets)
        return found if out_dtype is None else op.Cast(found, to=out_dtype)

    return call


def _matrices(weight: ir.Value, groups: int) -> list[ir.Value]:
    stacked = several.Split(weight, axis=0, num_outputs=groups) if groups > 1 else [weight]
    return [op.Squeeze(one, _whole(0)) for one in stacked]


def _at(offsets: ir.Value, group: int) -> ir.Value:
    """Return where `group` ends, [1]."""
    end = op.Slice(offsets, _whole(group), _whole(group + 1), _whole(0))
    return op.Cast(end, to=ir.DataType.INT64)


def _whole(value: int) -> ir.Value:
    return constant(np.asarray([value], np.int64))
