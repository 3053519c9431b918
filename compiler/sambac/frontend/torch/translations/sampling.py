"""Sampling the nearest pixel at reflected points, which onnxruntime rounds before it reflects."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_grid_sampler

from .operators import constant, number, op, sizes

_NEAREST, _BORDER, _REFLECTION = 1, 1, 2
"""As PyTorch numbers modes and paddings."""


def grid_sampler(
    x: ir.Value, grid: ir.Value, mode: int, padding: int, align_corners: bool
) -> ir.Value:
    """Sample images `x` [N, C, *] at the points of `grid` [N, *, axes], the last axis first."""
    if mode == _NEAREST and padding == _REFLECTION and not align_corners:
        grid, padding, align_corners = _reflected(x, grid), _BORDER, True
    result: ir.Value = aten_grid_sampler(x, grid, mode, padding, align_corners)
    return result


def _reflected(x: ir.Value, grid: ir.Value) -> ir.Value:
    """Return points between corners at the pixels nearest to `grid` between edges, reflected.

    Pixel k of n lies at (2 k + 1) / n - 1 between edges, and at 2 k / (n - 1) - 1 between corners.
    """
    assert grid.dtype is not None
    dtype, image = grid.dtype.numpy(), np.asarray(sizes(x)[:1:-1])
    size, last = constant(image.astype(dtype)), constant((image - 1).astype(dtype))
    zero, half = number(0.0, grid), number(0.5, grid)
    from_edge = op.Abs(op.Mul(op.Mul(op.Add(grid, 1.0), size), 0.5))
    turns = op.Floor(op.Div(from_edge, size))
    rest = op.Sub(from_edge, op.Mul(turns, size))
    odd = op.Equal(op.Mod(turns, number(2.0, grid), fmod=1), number(1.0, grid))
    place = op.Sub(op.Where(odd, op.Sub(size, rest), rest), half)
    pixel = op.Round(op.Max(op.Min(place, last), zero))
    span = constant(np.maximum(image - 1, 1).astype(dtype))
    return op.Sub(op.Div(op.Mul(pixel, 2.0), span), 1.0)
