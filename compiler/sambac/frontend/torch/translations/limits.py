"""What bends at limits: which input gets the gradient there, and what becomes of limits like NaN.

ONNX has one operator for `clamp`, whose gradient passes at its very limits, and for `hardtanh` and
`relu6`, whose gradient does not.
"""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_clamp, aten_clamp_tensor
from onnxscript.function_libs.torch_lib.ops.nn import aten_leaky_relu

from .operators import constant, is_float, number, op, rank, stop


def clamp(x: ir.Value, min: float | None = None, max: float | None = None) -> ir.Value:
    """min(max(x, min), max); the gradient passes where `x` is not outside.

    A missing limit is infinite: without one, onnxruntime cuts at the largest number. A limit that
    is NaN makes everything NaN.
    """
    if not is_float(x):
        result: ir.Value = aten_clamp(x, min, max)
        return result
    if _unknown(min, max):
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
    x = op.Where(op.IsNaN(x), number(math.nan, x), x)  # which no gradient reaches
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


def _unknown(*limits: float | None) -> bool:
    """Tell whether one of `limits` is NaN."""
    return any(limit is not None and math.isnan(limit) for limit in limits)


def hardtanh(x: ir.Value, min_val: float = -1.0, max_val: float = 1.0) -> ir.Value:
    """min(max(x, min_val), max_val), NaN if a limit is; no gradient passes at the limits."""
    cut = clamp(x, min_val, max_val)
    if not is_float(x) or _unknown(min_val, max_val):
        return cut
    outside = op.Or(op.LessOrEqual(x, number(min_val, x)), op.GreaterOrEqual(x, number(max_val, x)))
    return op.Where(outside, stop(cut), x)


def saturated(x: ir.Value, min_val: float = -1.0, max_val: float = 1.0) -> ir.Value:
    """Return the same without a word of gradients."""
    return clamp(x, min_val, max_val)


def relu6(x: ir.Value) -> ir.Value:
    """min(max(x, 0), 6); no gradient passes at the limits."""
    return hardtanh(x, 0.0, 6.0)


def prelu(x: ir.Value, weight: ir.Value) -> ir.Value:
    """X where it is positive, else x times `weight`, one for all or one for each channel.

    It is a product, which is several times faster than onnxruntime's PRelu, and which an infinite
    weight makes no number at 0.
    """
    shape = [-1, *[1] * (rank(x) - 2)] if rank(x) else []
    return op.Mul(x, _slopes(x, op.Reshape(weight, constant(np.asarray(shape, np.int64)))))


def leaky_relu(x: ir.Value, negative_slope: float = 0.01) -> ir.Value:
    """X where it is positive, else x times `negative_slope`."""
    if math.isfinite(negative_slope):
        result: ir.Value = aten_leaky_relu(x, negative_slope)
        return result
    return op.Mul(x, _slopes(x, number(negative_slope, x)))


def _slopes(x: ir.Value, below: ir.Value) -> ir.Value:
    """Return 1 where `x` is positive, else `below`."""
    return op.Where(op.Greater(x, number(0.0, x)), number(1.0, x), below)
