"""Fake quantisation: rounded on the way forward, and straight through inside the range back."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, number, op, rank, stop, with_slope


def per_tensor(
    x: ir.Value, scale: float, zero_point: int, *limits: int, slope: bool = True
) -> ir.Value:
    """(clamp(round(x / scale) + zero_point, quant_min, quant_max) - zero_point) * scale.

    `limits` are quant_min and quant_max. The gradient of `x` is that of the result where the
    integer is not clamped, else 0; without `slope` there is none.
    """
    return _quantized(x, (number(scale, x), number(zero_point, x)), limits, slope=slope)


def per_tensor_by_values(
    x: ir.Value, scale: ir.Value, zero_point: ir.Value, *limits: int, slope: bool = True
) -> ir.Value:
    """The same with a scale and a zero point that are tensors of one element."""
    one = constant(np.asarray([], np.int64))
    grid = [op.CastLike(op.Reshape(value, one), x) for value in (scale, zero_point)]
    return _quantized(x, grid, limits, slope=slope)


def per_channel(
    x: ir.Value,
    scale: ir.Value,
    zero_point: ir.Value,
    axis: int,
    *limits: int,
    slope: bool = True,
) -> ir.Value:
    """The same with a scale and a zero point for each index along `axis`, [C]."""
    shape = [1] * rank(x)
    shape[axis] = -1
    channels = constant(np.asarray(shape, np.int64))
    grid = [op.CastLike(op.Reshape(value, channels), x) for value in (scale, zero_point)]
    return _quantized(x, grid, limits, slope=slope)


def without_slope(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate`, one of these, for where no gradients are wanted."""

    def call(x: ir.Value, *settings: ir.Value | float) -> ir.Value:
        return translate(x, *settings, slope=False)

    return call


def _quantized(
    x: ir.Value, grid: Sequence[ir.Value], limits: Sequence[int], *, slope: bool
) -> ir.Value:
    """`grid` are the scale and the zero point."""
    scale, zero_point = grid
    low, high = (number(limit, x) for limit in limits)
    fixed = stop(x) if slope else x
    whole = op.Add(op.Round(op.Mul(fixed, op.Reciprocal(scale))), zero_point)
    kept = op.Clip(whole, low, high)
    value = op.Mul(op.Sub(kept, zero_point), scale)
    if not slope:
        return value
    inside = op.Equal(whole, kept)
    return with_slope(value, x, op.CastLike(inside, x))
