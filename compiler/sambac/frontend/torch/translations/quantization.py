"""Fake quantisation: rounded on the way forward, and straight through inside the range back."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .operators import constant, number, op, rank, stop, with_slope


def per_tensor(
    x: ir.Value, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> ir.Value:
    """(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale.

    The gradient of `x` is that of the result where the integer is not clamped, else 0.
    """
    return _quantized(x, number(scale, x), number(zero_point, x), (quant_min, quant_max))


def per_tensor_by_values(
    x: ir.Value, scale: ir.Value, zero_point: ir.Value, quant_min: int, quant_max: int
) -> ir.Value:
    """The same with a scale and a zero point that are tensors of one element."""
    one = constant(np.asarray([], np.int64))
    scale, zero_point = (op.Reshape(value, one) for value in (scale, zero_point))
    return _quantized(x, op.CastLike(scale, x), op.CastLike(zero_point, x), (quant_min, quant_max))


def per_channel(
    x: ir.Value, scale: ir.Value, zero_point: ir.Value, axis: int, *limits: int
) -> ir.Value:
    """The same with a scale and a zero point for each index along `axis`, [C].

    `limits` are quant_min and quant_max.
    """
    quant_min, quant_max = limits
    shape = [1] * rank(x)
    shape[axis] = -1
    channels = constant(np.asarray(shape, np.int64))
    scale, zero_point = (op.Reshape(value, channels) for value in (scale, zero_point))
    return _quantized(x, op.CastLike(scale, x), op.CastLike(zero_point, x), (quant_min, quant_max))


def _quantized(
    x: ir.Value, scale: ir.Value, zero_point: ir.Value, limits: tuple[int, int]
) -> ir.Value:
    low, high = (number(limit, x) for limit in limits)
    fixed = stop(x)
    whole = op.Add(op.Round(op.Mul(fixed, op.Reciprocal(scale))), zero_point)
    kept = op.Clip(whole, low, high)
    inside = op.Equal(whole, kept)
    value = op.Mul(op.Sub(kept, zero_point), scale)
    return with_slope(value, x, op.CastLike(inside, x))
