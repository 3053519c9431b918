"""Sampling images: at points such as onnxruntime can take, at which there is what PyTorch finds.

onnxruntime reads outside of the image at NaN, and rounds a nearest pixel before it reflects.

Of antialiased interpolation between corners, and by factors, it takes another form.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
import torch
from onnxscript.function_libs.torch_lib.ops.core import aten_grid_sampler
from onnxscript.function_libs.torch_lib.ops.nn import (
    aten__upsample_bicubic2d_aa,
    aten__upsample_bilinear2d_aa,
)

from .operators import constant, is_float, number, op, rank, sizes, stop, typed
from .resizing import of_units

_LINEAR, _NEAREST, _CUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
"""As PyTorch numbers modes and paddings."""

_OUTSIDE, _PERIOD = 8.0, 4.0
"""Where no pixel of any image is, and after what reflections repeat."""

_IMAGES = 4
"""The rank of images, whose NaN PyTorch takes for another pixel than that of volumes."""


def grid_sampler(
    x: ir.Value, grid: ir.Value, mode: int, padding: int, align_corners: bool
) -> ir.Value:
    """Sample images `x` [N, C, *] at the points of `grid` [N, *, axes], the last axis first.

    A point that is NaN lies outside if `padding` is of zeros, else at an end. Where images have no
    weights for a point, the result is NaN.
    """
    images = rank(x) == _IMAGES
    points = _points(grid, padding, -1.0 if images else 1.0)
    weighted = mode == _CUBIC or (images and (mode, padding) == (_LINEAR, _ZEROS))
    if mode == _NEAREST and padding == _REFLECTION and not align_corners:
        points, padding, align_corners = _reflected(x, points), _BORDER, True
    result: ir.Value = aten_grid_sampler(x, points, mode, padding, align_corners)
    if not weighted:
        return result
    fixed = stop(grid)
    nothing = op.ReduceSum(op.Sub(fixed, fixed), [-1], keepdims=0)
    return op.Add(result, op.Unsqueeze(nothing, [1]))


def _points(grid: ir.Value, padding: int, end: float) -> ir.Value:
    """Return finite points at which there is the same as at those of `grid`.

    With a `padding` that is not of zeros a coordinate that is NaN is at `end`.
    """
    if padding == _REFLECTION:
        near = op.Mod(grid, number(_PERIOD, grid), fmod=1)
    else:
        near = op.Clip(grid, number(-_OUTSIDE, grid), number(_OUTSIDE, grid))
    other = number(_OUTSIDE if padding == _ZEROS else end, grid)
    return typed(op.Where(op.IsNaN(near), other, near), grid)


def _reflected(x: ir.Value, grid: ir.Value) -> ir.Value:
    """Return points between corners at the pixels nearest to `grid` between edges, reflected.

    Pixel k of n lies at (2 k + 1) / n - 1 between edges, and at 2 k / (n - 1) - 1 between corners.
    """
    assert grid.dtype is not None
    dtype, image = grid.dtype.numpy(), np.asarray(sizes(x, *range(rank(x) - 1, 1, -1)))
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


_EXPORTED: dict[str, Callable[..., ir.Value]] = {
    "bicubic": aten__upsample_bicubic2d_aa,
    "bilinear": aten__upsample_bilinear2d_aa,
}


_KERNELS: dict[str, Callable[..., torch.Tensor]] = {
    "bicubic": torch.ops.aten._upsample_bicubic2d_aa.default,
    "bilinear": torch.ops.aten._upsample_bilinear2d_aa.default,
}


def antialiased(mode: str) -> Callable[..., ir.Value]:
    """Return the translation of antialiased interpolation by `mode`, bilinear or bicubic."""

    def translate(
        x: ir.Value,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> ir.Value:
        """Return images [N, C, H, W] of other sizes.

        Between corners, and by factors that do not give the sizes, as products of matrices.
        """
        factors = (scales_h, scales_w)
        whole = all(by is None or by.is_integer() for by in factors)
        if not align_corners and (whole or None in factors or not is_float(x)):
            return _EXPORTED[mode](x, output_size, align_corners, *factors)
        axes = [*zip(sizes(x, -2, -1), map(int, output_size), factors, strict=True)]
        if not align_corners and all(size * (by or 0) == goal for size, goal, by in axes):
            return _EXPORTED[mode](x, output_size, align_corners, *factors)
        down, across = (_weights(mode, axis, x, align_corners=align_corners) for axis in axes)
        return op.MatMul(op.MatMul(constant(down), x), constant(across.T))

    return translate


def _weights(
    mode: str, axis: tuple[int, int, float | None], like: ir.Value, *, align_corners: bool
) -> np.ndarray:
    """Return how much each element of an axis has of each before, [after, before].

    `axis` are these sizes, that before first, and the factor. The weights are PyTorch's own: what
    it makes of the columns of the unit matrix.
    """
    assert like.dtype is not None
    size, wanted, factor = axis

    def resized(units: torch.Tensor) -> torch.Tensor:
        goal = [wanted, size]
        return _KERNELS[mode](units[None, None], goal, align_corners, factor, None)[0, 0]

    return of_units(resized, size, torch.float64).astype(like.dtype.numpy())
