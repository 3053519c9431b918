"""What is cut off at limits: which input gets the gradient there.

ONNX has one operator for `clamp`, whose gradient passes at its very limits, and for `hardtanh` and
`relu6`, whose gradient does not.
"""

from __future__ import annotations

import math

import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_clamp, aten_clamp_tensor

from .operators import is_float, number, op, stop


def clamp(x: ir.Value, min: float | None = None, max: float | None = None) -> ir.Value:
    """min(max(x, min), max); the gradient passes where `x` is not outside.

    A missing limit is infinite: without one, onnxruntime cuts at the largest number.
    """
    if not is_float(x):
        result: ir.Value = aten_clamp(x, min, max)
        return result
    low = number(-math.inf if min is None else min, x)
    return op.Clip(x, low, number(math.inf if max is None else max, x))


def clamp_min(x: ir.Value, min: float) -> ir.Value:
    """max(x, min)."""
    return clamp(x, min, None)


def clamp_max(x: ir.Value, max: float) -> ir.Value:
    """min(x, max)."""
    return clamp(x, None, max)


def clamp_tensor(x: ir.Value, min: ir.Value | None = None, max: ir.Value | None = None) -> ir.Value:
    """min(max(x, min), max) for limits that broadcast with `x` and are no NaN.

    The gradient goes to `x` where it is not outside, to `min` where `x < min < max`, and to `max`
    where `x > max` or `max < min`.
    """
    if not is_float(x):
        result: ir.Value = aten_clamp_tensor(x, min, max)
        return result
    low = None if min is None else op.CastLike(min, x)
    high = None if max is None else op.CastLike(max, x)
    if low is None or high is None:
        if low is not None:
            return op.Where(op.Less(x, low), low, x)
        return x if high is None else op.Where(op.Greater(x, high), high, x)
    below, above = op.Less(x, low), op.Greater(x, high)
    cut = op.Where(op.And(below, op.Less(low, high)), low, high)
    return op.Where(op.Or(below, above), cut, x)


def clamp_min_tensor(x: ir.Value, min: ir.Value) -> ir.Value:
    """max(x, min)."""
    return clamp_tensor(x, min, None)


def clamp_max_tensor(x: ir.Value, max: ir.Value) -> ir.Value:
    """min(x, max)."""
    return clamp_tensor(x, None, max)


def hardtanh(x: ir.Value, min_val: float = -1.0, max_val: float = 1.0) -> ir.Value:
    """min(max(x, min_val), max_val); no gradient passes at the limits."""
    cut = clamp(x, min_val, max_val)
    if not is_float(x):
        return cut
    inside = op.And(op.Greater(x, number(min_val, x)), op.Less(x, number(max_val, x)))
    return op.Where(inside, x, stop(cut))


def relu6(x: ir.Value) -> ir.Value:
    """min(max(x, 0), 6); no gradient passes at the limits."""
    return hardtanh(x, 0.0, 6.0)
