"""Norms, distances of rows, deviations and softmaxes: flat where usual formulas have no slope."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.linalg import aten_linalg_vector_norm

from .empties import count, var_correction
from .limits import unknown
from .operators import constant, number, op, rank, stop, typed

_EXTREMA = {math.inf: "ReduceMax", -math.inf: "ReduceMin"}
_EXPORTED = (0.0, 1.0, 2.0)
"""Orders of norms that the exporter knows operators for, whose gradients are right."""


def vector_norm(
    x: ir.Value,
    ord: float = 2.0,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    dtype: int = -1,
) -> ir.Value:
    """sum(|x|^ord)^(1 / ord) over the axes `dim`; no gradient reaches zeros, nor comes from them.

    `dtype`, if not negative, is the number of ONNX of the type to compute in.
    """
    if ord in _EXPORTED:
        # Without axes the exporter flattens x, and forgets to keep them.
        axes = _wanted(x, dim) if rank(x) else None
        result: ir.Value = aten_linalg_vector_norm(x, ord, axes, keepdim, dtype)
        return result
    if dtype >= 0:
        x = typed(op.Cast(x, to=dtype), x)
        x.dtype = ir.DataType(dtype)
    size = typed(op.Abs(x), x)
    if ord in _EXTREMA:
        return _extreme(x, _EXTREMA[ord], _wanted(x, dim), keepdim)
    at_zero = 0.0 if ord > 0 else math.inf
    along = constant(np.asarray(_wanted(x, dim), np.int64))
    total = op.ReduceSum(_power(size, ord, at_zero), along, keepdims=int(keepdim))
    return _power(total, 1 / ord, at_zero)


def _extreme(x: ir.Value, kind: str, dim: Sequence[int], keepdim: bool) -> ir.Value:
    """Return the extreme size, NaN beside a NaN, from which no gradient comes."""
    axes = constant(np.asarray(dim, np.int64))
    safe = op.Where(op.IsNaN(x), number(0.0, x), x)
    found = getattr(op, kind)(op.Abs(safe), axes, keepdims=int(keepdim))
    none = op.Cast(op.ReduceMax(unknown(x), axes, keepdims=int(keepdim)), to=ir.DataType.BOOL)
    return op.Where(none, number(math.nan, x), found)


def renorm(x: ir.Value, p: float, dim: int, maxnorm: float) -> ir.Value:
    """Return the slices along the axis `dim`, those of larger norms than `maxnorm` scaled to it.

    Gradients pass the others as they are.
    """
    axes = [axis for axis in range(rank(x)) if axis != dim % rank(x)]
    over = op.Greater(vector_norm(typed(stop(x), x), p, axes, True), number(maxnorm, x))
    size = vector_norm(typed(op.Where(over, x, number(0.0, x)), x), p, axes, True)
    factor = op.Div(number(maxnorm, x), op.Add(size, number(1e-7, x)))
    return op.Where(over, op.Mul(x, factor), x)


def _power(x: ir.Value, exponent: float, at_zero: float) -> ir.Value:
    """x^exponent, which is the constant `at_zero` where x is 0."""
    zero = op.Equal(x, number(0.0, x))
    safe = op.Where(zero, number(1.0, x), x)
    return op.Where(zero, number(at_zero, x), op.Pow(safe, number(exponent, x)))


def _wanted(x: ir.Value, dim: Sequence[int] | int | None) -> list[int]:
    """Return the axes `dim`, which are all of `x` if none are named."""
    if isinstance(dim, int):
        return [dim]
    return list(dim) if dim else list(range(rank(x)))


def std(x: ir.Value, unbiased: bool = True) -> ir.Value:
    """The standard deviation of all elements."""
    return std_correction(x, None, correction=float(unbiased))


def std_dim(
    x: ir.Value, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False
) -> ir.Value:
    """The standard deviation over the axes `dim`."""
    return std_correction(x, dim, correction=float(unbiased), keepdim=keepdim)


def std_correction(
    x: ir.Value,
    dim: Sequence[int] | None = None,
    correction: float | None = None,
    keepdim: bool = False,
) -> ir.Value:
    """sqrt(sum((x - mean)^2) / (n - correction)), with no gradient where it is 0."""
    wanted = _wanted(x, dim)
    axes = constant(np.asarray(wanted, np.int64))
    elements = count(x, wanted)
    if elements is None:  # of open sizes, which nothing trains with
        return op.Sqrt(var_correction(x, wanted, correction, keepdim))
    free = elements - (1.0 if correction is None else correction)
    away = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
    total = op.ReduceSum(op.Mul(away, away), axes, keepdims=int(keepdim))
    variance = op.Div(total, number(max(free, 0.0) if elements else 0.0, x))
    zero = op.Equal(variance, number(0.0, x))
    root = op.Sqrt(op.Where(zero, number(1.0, x), variance))
    return op.Where(zero, number(0.0, x), root)


def safe_softmax(x: ir.Value, dim: int, dtype: int = -1) -> ir.Value:
    """The softmax along the axis `dim`, which is 0 in rows of -inf alone, as are gradients."""
    if dtype >= 0:
        x = typed(op.Cast(x, to=dtype), x)
        x.dtype = ir.DataType(dtype)
    lowest = number(-math.inf, x)
    axes = constant(np.asarray([dim], np.int64))
    lows = op.Cast(op.Equal(x, lowest), to=ir.DataType.UINT8)
    dead = op.Cast(op.ReduceMin(lows, axes, keepdims=1), to=ir.DataType.BOOL)
    zero = number(0.0, x)
    return op.Where(dead, zero, op.Softmax(op.Where(dead, zero, x), axis=dim))


def cdist(
    first: ir.Value, second: ir.Value, p: float = 2.0, compute_mode: int | None = None
) -> ir.Value:
    """|a - b|_p for each row a of `first` [..., P, M] and b of `second` [..., R, M]: [..., P, R].

    Differences are made one by one, also where PyTorch multiplies matrices to save time
    (`compute_mode`), which loses digits of small distances. Batches are broadcast.
    """
    del compute_mode
    assert first.dtype is not None
    rows = op.Unsqueeze(first, constant(np.asarray([-2], np.int64)))
    columns = op.Unsqueeze(second, constant(np.asarray([-3], np.int64)))
    away = op.Sub(rows, columns)
    away.dtype = first.dtype
    away.shape = ir.Shape([None] * (max(rank(first), rank(second)) + 1))
    return _farthest(away) if p == math.inf else vector_norm(away, p, [-1])


def euclidean(first: ir.Value, second: ir.Value) -> ir.Value:
    """What PyTorch decomposes `cdist` into where it would multiply matrices."""
    return cdist(first, second)


def _farthest(away: ir.Value) -> ir.Value:
    """max(|away|) over the last axis; each of equal ones gets the whole gradient."""
    size = typed(op.Abs(away), away)
    largest = vector_norm(typed(stop(away), away), math.inf, [-1], keepdim=True)
    nothing = op.Sub(size, stop(size))
    counts = op.And(op.Equal(size, largest), op.Not(op.IsNaN(nothing)))
    axes = constant(np.asarray([-1], np.int64))
    slopes = op.ReduceSum(op.Where(counts, nothing, number(0.0, away)), axes, keepdims=0)
    return op.Add(op.Squeeze(largest, axes), slopes)
