"""Interpolation by factors: PyTorch takes pixels by the factor, not by the sizes that follow.

5 pixels by 2.3 are 11, which PyTorch takes 1 / 2.3 apart, and not 5 / 11. A Resize takes sizes or
factors. Of a factor in float32 it may make another size, or find another nearest pixel, and it has
rules of its own for a size that stays. So, where that matters, and the sizes are known,

    upsample_nearest(x)   ->  Gather(x, pixels) along each axis
    upsample_linear(x)    ->  x times the weights of each axis, as products of matrices; cubic alike

with pixels and weights that are PyTorch's own. What is not finite spreads along its axes there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx_ir as ir
import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .operators import constant, converted, is_float, op

_aten = torch.ops.aten

_DEPTH_BEHIND = (0, 1, 3, 2, 4)
"""The order of axes of a volume, or back, in which its depth stands before its width."""


@dataclass(frozen=True)
class _Interpolation:
    """A kernel of PyTorch, for images of so many `axes`, and the mode of ONNX that is like it."""

    kernel: Callable[..., torch.Tensor]
    axes: int
    mode: str

    @property
    def corners(self) -> tuple[bool, ...]:
        """What the kernel is told of corners: that they are not kept, or nothing."""
        return () if self.mode == "nearest" else (False,)

    def place(self, align_corners: bool) -> str:
        """Return how ONNX calls the way from a place in the result to one in the image."""
        if self.mode == "nearest":
            return "asymmetric"
        return "align_corners" if align_corners else "half_pixel"


_KINDS = MappingProxyType({
    _aten.upsample_nearest1d: _Interpolation(_aten.upsample_nearest1d.default, 1, "nearest"),
    _aten.upsample_nearest2d: _Interpolation(_aten.upsample_nearest2d.default, 2, "nearest"),
    _aten.upsample_nearest3d: _Interpolation(_aten.upsample_nearest3d.default, 3, "nearest"),
    _aten.upsample_linear1d: _Interpolation(_aten.upsample_linear1d.default, 1, "linear"),
    _aten.upsample_bilinear2d: _Interpolation(_aten.upsample_bilinear2d.default, 2, "linear"),
    _aten.upsample_trilinear3d: _Interpolation(_aten.upsample_trilinear3d.default, 3, "linear"),
    _aten.upsample_bicubic2d: _Interpolation(_aten.upsample_bicubic2d.default, 2, "cubic"),
})  # fmt: skip


def _listed(kind: _Interpolation) -> Callable[..., ir.Value]:
    """Return the translation of what takes its factors as a list."""

    def nearest(
        x: ir.Value, output_size: ir.Value | None, scale_factors: Sequence[float] | None = None
    ) -> ir.Value:
        return _resized(kind, x, output_size, scale_factors)

    def weighed(
        x: ir.Value,
        output_size: ir.Value | None,
        align_corners: bool,
        scale_factors: Sequence[float] | None = None,
    ) -> ir.Value:
        return _resized(kind, x, output_size, scale_factors, align_corners)

    return weighed if kind.corners else nearest


def _single(kind: _Interpolation) -> Callable[..., ir.Value]:
    """Return the translation of what takes each factor by itself."""

    def nearest(
        x: ir.Value,
        output_size: ir.Value,
        first: float | None = None,
        second: float | None = None,
        third: float | None = None,
    ) -> ir.Value:
        return _resized(kind, x, output_size, (first, second, third)[: kind.axes])

    def weighed(
        x: ir.Value,
        output_size: ir.Value,
        align_corners: bool,
        first: float | None = None,
        second: float | None = None,
        third: float | None = None,
    ) -> ir.Value:
        factors = (first, second, third)[: kind.axes]
        return _resized(kind, x, output_size, factors, align_corners)

    return weighed if kind.corners else nearest


TRANSLATIONS: dict[Callable[..., object], Callable[..., ir.Value]] = {
    overload: translate
    for packet, kind in _KINDS.items()
    for overload, translate in ((packet.vec, _listed(kind)), (packet.default, _single(kind)))
}
"""The translations of interpolations of all kinds but the antialiased, by operator."""


def _resized(
    kind: _Interpolation,
    x: ir.Value,
    output_size: ir.Value | None,
    given: Sequence[float | None] | None,
    align_corners: bool = False,
) -> ir.Value:
    """Return `x` [N, C, *] in other sizes: of `output_size`, or by factors, which go before."""
    factors = [factor for factor in given or () if factor is not None]
    where = kind.place(align_corners)
    if len(factors) < kind.axes:
        return _of_sizes(kind, x, output_size, where)
    image = [size for size in (x.shape or ())[2:] if isinstance(size, int)]
    wanted = [int(size * factor) for size, factor in zip(image, factors, strict=False)]
    axes = [*zip(image, wanted, factors, strict=False)]
    if len(image) < kind.axes or all(_is_alike(kind, *axis) for axis in axes):
        return _by_factors(kind, x, factors, where)
    if align_corners or all(size * factor == goal for size, goal, factor in axes):
        return _of_sizes(kind, x, constant(np.asarray(wanted, np.int64)), where)
    dtype = x.dtype
    assert dtype is not None
    if kind.mode == "nearest" or dtype == ir.DataType.DOUBLE:
        made = x
    elif is_float(x):
        made = converted(x, ir.DataType.FLOAT)
    else:  # whole numbers, which are rounded in a way of their own
        return _by_factors(kind, x, factors, where)
    double = dtype == ir.DataType.DOUBLE
    for axis in range(kind.axes):
        made = _along(kind, made, axis, _weights(kind, axes, axis, double=double))
    return converted(made, dtype)


def _is_alike(kind: _Interpolation, size: int, goal: int, factor: float) -> bool:
    """Tell whether onnxruntime makes of an axis what PyTorch does, by the same factor in float32.

    Among the nearest pixels it takes others where a place is a whole number but for rounding.
    """
    short = np.float32(factor)
    counts = {int(np.float32(size) * short), int(size * float(short)), goal}
    is_whole = kind.mode != "nearest" or float(short) == factor
    return len(counts) == 1 and is_whole and (size != goal or factor == 1)


def _of_sizes(kind: _Interpolation, x: ir.Value, goal: ir.Value | None, where: str) -> ir.Value:
    """Return `x` with the sizes `goal` behind those of batch and channels."""
    whole = op.Concat(op.Shape(x, start=0, end=2), op.Cast(goal, to=ir.DataType.INT64), axis=0)
    return op.Resize(x, None, None, whole, **_settings(kind, where))


def _by_factors(
    kind: _Interpolation, x: ir.Value, factors: Sequence[float], where: str
) -> ir.Value:
    """Return `x` resized by `factors`, as onnxruntime does."""
    scales = constant(np.asarray([1, 1, *factors], np.float32))
    return op.Resize(x, None, scales, None, **_settings(kind, where))


def _settings(kind: _Interpolation, where: str) -> dict[str, object]:
    return {
        "mode": kind.mode,
        "coordinate_transformation_mode": where,
        "nearest_mode": "floor",
        "cubic_coeff_a": -0.75,
    }


def _weights(
    kind: _Interpolation,
    axes: Sequence[tuple[int, int, float]],
    axis: int,
    *,
    double: bool,
) -> np.ndarray:
    """Return how much each pixel of the result has of each of the image along `axis`, [in, out].

    `axes` are those of the image: the number of pixels before and after, and the factor.

    The weights are PyTorch's own: what it makes of the columns of the unit matrix. Images whose
    sizes all stay it copies, whatever the factors; the other axes are of one pixel, and stay if
    theirs do.
    """
    others = [*axes]
    size, wanted, factor = others.pop(axis)
    beside = 1 if all(before == after for before, after, _ in others) else 2
    shape, goal, scales = [1] * kind.axes, [beside] * kind.axes, [float(beside)] * kind.axes
    shape[axis], goal[axis], scales[axis] = size, wanted, factor

    def resized(units: torch.Tensor) -> torch.Tensor:
        made = kind.kernel(units.reshape(1, size, *shape), goal, *kind.corners, *scales)
        return made.movedim(2 + axis, 2).reshape(size, wanted, -1)[:, :, 0]

    return of_units(resized, size, torch.float64 if double else torch.float32)


def of_units(
    kernel: Callable[[torch.Tensor], torch.Tensor], size: int, dtype: torch.dtype
) -> np.ndarray:
    """Return what `kernel` makes of the unit matrix of `size` rows: the weights that it has."""
    with unset_fake_temporarily():
        return kernel(torch.eye(size, dtype=dtype)).numpy()


def _along(kind: _Interpolation, x: ir.Value, axis: int, weights: np.ndarray) -> ir.Value:
    """Return what there is of `x` [N, C, *] by the `weights` [in, out] of an axis of the image."""
    if kind.mode == "nearest":
        return op.Gather(x, constant(weights.argmax(0)), axis=2 + axis)
    behind = kind.axes - 1 - axis
    if behind == 0:
        return op.MatMul(x, constant(weights))
    rows = constant(np.ascontiguousarray(weights.T))
    if behind == 1:
        return op.MatMul(rows, x)
    deep = op.MatMul(rows, op.Transpose(x, perm=_DEPTH_BEHIND))
    return op.Transpose(deep, perm=_DEPTH_BEHIND)
