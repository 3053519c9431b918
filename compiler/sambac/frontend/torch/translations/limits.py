"""What bends at limits and at extrema: which input gets the gradient there, what becomes of NaN.

ONNX has one operator for `clamp`, whose gradient passes at its very limits, and for `hardtanh` and
`relu6`, whose gradient does not.

Of several elements a NaN is the largest, and the smallest, wherever there is one. What onnxruntime
makes of NaN among others depends on where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_argmax,
    aten_argmin,
    aten_clamp,
    aten_clamp_tensor,
    aten_sort,
    aten_topk,
)
from onnxscript.function_libs.torch_lib.ops.nn import aten_leaky_relu

from .operators import clip_open, constant, converted, is_float, number, op, rank, stop, typed


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


def larger(x: ir.Value, y: ir.Value) -> ir.Value:
    """The larger of both, which NaN is only of two; `x`, and its gradient, if they are equal."""
    return _taken(x, y, op.GreaterOrEqual)


def smaller(x: ir.Value, y: ir.Value) -> ir.Value:
    """The smaller of both, likewise."""
    return _taken(x, y, op.LessOrEqual)


def _taken(x: ir.Value, y: ir.Value, wins: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
    if not is_float(x):
        return op.Where(wins(x, y), x, y)
    return op.Where(op.Or(wins(x, y), op.IsNaN(y)), x, y)


def _unknown(*limits: float | None) -> bool:
    """Tell whether one of `limits` is NaN."""
    return any(limit is not None and math.isnan(limit) for limit in limits)


def hardtanh(x: ir.Value, min_val: float = -1.0, max_val: float = 1.0) -> ir.Value:
    """min(max(x, min_val), max_val), NaN if a limit is; no gradient passes at the limits.

    Those of narrow types are compared as float32, like PyTorch's: 0.1 is above the float16 next to
    it, through which the gradient passes.
    """
    if not is_float(x) or _unknown(min_val, max_val):
        return clamp(x, min_val, max_val)
    if x.dtype in _NARROW:
        wide = op.Cast(x, to=ir.DataType.FLOAT)
        wide.dtype, wide.shape = ir.DataType.FLOAT, x.shape
        return typed(op.Cast(hardtanh(wide, min_val, max_val), to=x.dtype), x)
    return clip_open(x, number(min_val, x), number(max_val, x))


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


_NARROW = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)

Translation = Callable[..., ir.Value]

_PLACES: dict[str, Translation] = {"ArgMax": aten_argmax, "ArgMin": aten_argmin}

_SECOND = {ir.DataType.DOUBLE: float(np.finfo(np.float64).max)}
"""What stands for infinity where NaN is the largest: of float64 its largest number."""

_HUGE = 1e300
"""The same for narrower types, which are compared as float64."""


def reduced(kind: str) -> Translation:
    """Return the translation of a reduction over axes: ReduceMax or ReduceMin."""

    def translate(x: ir.Value, dim: Sequence[int] = (), keepdim: bool = False) -> ir.Value:
        """Return the extreme elements over the axes `dim`, or over all; equal ones share.

        Beside a NaN all gradients are NaN.
        """
        found, none = _found(kind, x, dim, keepdim)
        if none is None:
            return found
        return op.Mul(found, op.Where(none, number(np.nan, x), number(1.0, x)))

    return translate


def of_all(kind: str) -> Translation:
    """Return the translation of the same over all elements."""

    def translate(x: ir.Value) -> ir.Value:
        """Return the extreme element; equal ones share. Beside a NaN there are no gradients."""
        found, none = _found(kind, x, (), keepdim=False)
        return found if none is None else op.Where(none, number(np.nan, x), found)

    return translate


def _found(
    kind: str, x: ir.Value, dim: Sequence[int], keepdim: bool
) -> tuple[ir.Value, ir.Value | None]:
    """Return the extreme elements among numbers, and where a NaN is among them, if one can be."""
    axes = constant(np.asarray(dim, np.int64)) if dim else None
    found: ir.Value = getattr(op, kind)(x, axes, keepdims=int(keepdim))
    if not is_float(x):
        return found, None
    none = op.ReduceMax(unknown(x), axes, keepdims=int(keepdim))
    return found, op.Cast(none, to=ir.DataType.BOOL)


def both(x: ir.Value, dim: int | None = None, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
    """Return the smallest and the largest elements along the axis `dim`, or of all."""
    axes = () if dim is None or rank(x) == 0 else (dim,)
    return reduced("ReduceMin")(x, axes, keepdim), reduced("ReduceMax")(x, axes, keepdim)


def place(kind: str) -> Translation:
    """Return the translation of what finds an extreme element: ArgMax or ArgMin."""

    def translate(x: ir.Value, dim: int | None = None, keepdim: bool = False) -> ir.Value:
        """Return where the first one lies along the axis `dim`, or among all."""
        if dim is None:
            line = flat(x)
            at = translate(line, 0)
            return op.Reshape(at, constant(np.ones(rank(x), np.int64))) if keepdim else at
        found = _PLACES[kind](x, dim, keepdim)
        if not is_float(x) or rank(x) == 0:
            return found
        flags = unknown(x)
        none = op.ReduceMax(flags, constant(np.asarray([dim], np.int64)), keepdims=int(keepdim))
        at = aten_argmax(flags, dim, keepdim)
        return op.Where(op.Cast(none, to=ir.DataType.BOOL), at, found)

    return translate


def along(kind: str) -> Callable[..., tuple[ir.Value, ir.Value]]:
    """Return the translation of extreme elements along an axis, and where they lie."""
    value, where = reduced(kind), place(kind.replace("Reduce", "Arg"))

    def translate(x: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
        return value(x, () if rank(x) == 0 else (dim,), keepdim), where(x, dim, keepdim)

    return translate


def first_along(kind: str) -> Callable[..., tuple[ir.Value, ir.Value]]:
    """Return the same, where the first of equal elements alone gets the gradient."""
    plain, where = along(kind), place(kind.replace("Reduce", "Arg"))

    def translate(x: ir.Value, dim: int, keepdim: bool = False) -> tuple[ir.Value, ir.Value]:
        if rank(x) == 0 or not is_float(x):
            return plain(x, dim, keepdim)
        at = where(x, dim, True)
        found = op.GatherElements(x, at, axis=dim)
        return (found, at) if keepdim else (op.Squeeze(found, [dim]), op.Squeeze(at, [dim]))

    return translate


def topk(
    x: ir.Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[ir.Value, ir.Value]:
    """The `k` largest or smallest elements along the axis `dim`, and where they lie."""
    if rank(x) == 0:
        return op.Identity(x), constant(np.asarray(0, np.int64))
    if not is_float(x):
        found, at = aten_topk(x, k, dim, largest, sorted)
        return found, at
    _, at = aten_topk(_ordered(x), k, dim, largest, sorted)
    return op.GatherElements(x, at, axis=dim), at


def sort(x: ir.Value, dim: int = -1, descending: bool = False) -> tuple[ir.Value, ir.Value]:
    """All elements in their order along the axis `dim`, and where they were."""
    if x.dtype == ir.DataType.BOOL:
        found, at = sort(converted(x, ir.DataType.UINT8), dim, descending)
        return op.Cast(found, to=ir.DataType.BOOL), at
    if not is_float(x) or rank(x) == 0:
        found, at = aten_sort(x, dim, descending)
        return found, at
    _, at = aten_sort(_ordered(x), dim, descending)
    return op.GatherElements(x, at, axis=dim), at


def sort_stable(
    x: ir.Value, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> tuple[ir.Value, ir.Value]:
    """The same; equal elements stay in their order, as they always do."""
    return sort(x, dim, descending)


def flat(x: ir.Value) -> ir.Value:
    """Return `x` with all elements along one axis."""
    result = op.Reshape(x, [-1])
    shape = () if x.shape is None else x.shape.dims
    known = [size for size in shape if isinstance(size, int)]
    assert x.dtype is not None
    size = math.prod(known) if len(known) == len(shape) else None
    result.dtype, result.shape = x.dtype, ir.Shape([size])
    return result


def unknown(x: ir.Value) -> ir.Value:
    """Return 1 where `x` is NaN, else 0, in the type that is reduced fastest."""
    result = op.Cast(op.IsNaN(x), to=ir.DataType.UINT8)
    result.dtype, result.shape = ir.DataType.UINT8, x.shape
    return result


def _ordered(x: ir.Value) -> ir.Value:
    """Return numbers in the order of `x` in which NaN is the largest; no NaN is among them."""
    wide = op.Cast(x, to=ir.DataType.DOUBLE)
    wide.dtype, wide.shape = ir.DataType.DOUBLE, x.shape
    second = number(_SECOND.get(x.dtype, _HUGE), wide)  # type: ignore[arg-type]  # typed graph
    finite = op.Where(op.IsInf(wide, detect_negative=0), second, wide)
    return typed(op.Where(op.IsNaN(wide), number(np.inf, wide), finite), wide)
