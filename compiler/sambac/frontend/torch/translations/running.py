"""Extremes of what has come so far along an axis, and places among elements in their order."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from .operators import constant, converted, is_float, number, op, rank, sizes, typed

Found = tuple[ir.Value, ir.Value]


def extremes(compare: str) -> Callable[[ir.Value, int], Found]:
    """Return the translation of cummax (GreaterOrEqual) or cummin (LessOrEqual)."""

    def translate(x: ir.Value, dim: int) -> Found:
        """Return the extremes up to each element along `dim`, and where the last of them lies.

        From the first NaN on there are but NaN. Each step looks at twice as many elements.
        """
        if rank(x) == 0:
            return op.Identity(x), constant(np.asarray(0, np.int64))
        axis = dim % rank(x)
        (size,), step = sizes(x, axis), 1
        shape = [size if other == axis else 1 for other in range(rank(x))]
        at = op.Expand(constant(np.arange(size).reshape(shape)), op.Shape(x))
        while step < size:
            earlier = _later(at, axis, step, size)
            mine, theirs = (op.GatherElements(x, each, axis=axis) for each in (at, earlier))
            stays = getattr(op, compare)(mine, theirs)
            if is_float(x):
                kept = op.And(stays, op.Not(op.IsNaN(theirs)))
                stays = op.Or(op.IsNaN(mine), kept)
            at = op.Where(stays, at, earlier)
            step *= 2
        return typed(op.GatherElements(x, at, axis=axis), x), at

    return translate


def _later(at: ir.Value, axis: int, step: int, size: int) -> ir.Value:
    """Return `at` by `step` further along the axis, and as it is in front."""
    first = op.Slice(at, [0], [step], [axis])
    return op.Concat(first, op.Slice(at, [0], [size - step], [axis]), axis=axis)


def searchsorted(
    sequence: ir.Value,
    x: ir.Value | float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: ir.Value | None = None,
) -> ir.Value:
    """Return before how many elements of each row of `sequence` `x` is to stand, NaN last.

    Each element is compared with the whole row, which `sorter` sorts if it is there.
    """
    if sorter is not None:
        sequence = typed(op.GatherElements(sequence, sorter, axis=-1), sequence)
    if not isinstance(x, ir.Value):
        if not (is_float(sequence) or float(x).is_integer()):
            sequence = converted(sequence, ir.DataType.FLOAT)
        x = number(x, sequence)
    if rank(sequence) > 1:
        sequence = op.Unsqueeze(sequence, [-2])
    beyond = op.Greater if right or side == "right" else op.GreaterOrEqual
    passed = op.Not(beyond(sequence, op.Unsqueeze(x, [-1])))
    wanted = ir.DataType.INT32 if out_int32 else ir.DataType.INT64
    return op.ReduceSum(op.Cast(passed, to=wanted), [-1], keepdims=0)
