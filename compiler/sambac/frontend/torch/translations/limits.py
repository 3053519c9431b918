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

    A missing limit is infinite: without one, onnxruntime cuts at the largest number. A limit that
    is NaN makes everything NaN.
    """
    if not is_float(x):
        result: ir.Value = aten_clamp(x, min, max)
        return result
    if any(limit is not None and math.isnan(limit) for limit in (min, max)):
        return op.Add(op.Mul(x, 0.0), number(math.nan, x))
    low = number(-math.inf if min is None else min, x)
    return op.Clip(x, low, number(math.inf if max is None else max, x))


def clamp_min(x: ir.Value, min: float) -> ir.Value:
    """max(x, min)."""
    return clamp(x, min, None)


def clamp_max(x: ir.Value, max: float) -> ir.Value:
    """min(x, max)."""
    return clamp(x, None, max)


def clamp_tensor(x: ir.Value, min: ir.Value | None = None, max: ir.Value | None = None) -> ir.Value:
    """min(max(x, min), max) for limits that broadcast with `x`, NaN where a limit is.

    The gradient goes to `x` where it is not outside, to `min` where `x < min < max`, and to `max`
    where `x > max` or `max < min`.
    """
    if not is_float(x):
        result: ir.Value = aten_clamp_tensor(x, min, max)
        return result
    low = None if min is None else op.CastLike(min, x)
    high = None if max is None else op.CastLike(max, x)
    limits = [limit for limit in (low, high) if limit is not None]
    if not limits:
        return x
    unknown = op.IsNaN(limits[0])
    for limit in limits[1:]:
        unknown = op.Or(unknown, op.IsNaN(limit))
    return op.Where(unknown, number(math.nan, x), _between(x, low, high))


def _between(x: ir.Value, low: ir.Value | None, high: ir.Value | None) -> ir.Value:
    if high is None:
        assert low is not None
        return op.Where(op.Less(x, low), low, x)
    if low is None:
        return op.Where(op.Greater(x, high), high, x)
    below, above = op.Less(x, low), op.Greater(x, high)
    # Where both are equal, and above x, neither gets it.
    lowered = op.Or(above, op.Less(high, low))
    cut = op.Where(op.And(below, op.Less(low, high)), low, op.Where(lowered, high, stop(high)))
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
