"""Reductions that have no elements, or too few: PyTorch's mean of nothing is NaN.

ONNX leaves such means open, and onnxruntime makes zeros of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_all_dims,
    aten_mean,
    aten_mean_dim,
    aten_split,
    aten_var_correction,
)

from .operators import constant, number, op, rank, stop

_EXPORTED: Callable[..., ir.Value] = aten_var_correction


def mean(x: ir.Value, dtype: int = -1) -> ir.Value:
    """Return the mean of all elements; `dtype`, if not negative, is ONNX's number of its type."""
    if count(x, None) != 0:
        return _of_some(x, None, aten_mean(x, dtype))
    return mean_dim(x, None, dtype=dtype)


def mean_dim(
    x: ir.Value, dim: Sequence[int] | None, keepdim: bool = False, dtype: int = -1
) -> ir.Value:
    """Return the means over the axes `dim`, or over all."""
    if count(x, dim) != 0:
        return _of_some(x, dim, aten_mean_dim(x, axes_of(x, dim), keepdim, dtype))
    total = op.ReduceSum(x, _constant_axes(x, dim), keepdims=int(keepdim))
    nothing = op.Div(total, number(0.0, x))
    return op.Cast(nothing, to=dtype) if dtype >= 0 else nothing


def averaged(terms: ir.Value, *operands: ir.Value) -> ir.Value:
    """Return the mean of `terms`, computed from `operands`: there are none if those are empty."""
    if all(count(operand, None) != 0 for operand in operands):
        return _of_some(operands[0], None, op.ReduceMean(terms, keepdims=0))
    return op.Div(op.ReduceSum(terms, keepdims=0), number(0.0, operands[0]))


def _of_some(x: ir.Value, dim: Sequence[int] | None, result: ir.Value) -> ir.Value:
    """Return `result`, a mean of elements of `x`; where sizes are open it is NaN of none."""
    if count(x, dim) is not None:
        return result
    reduced = op.Gather(op.Shape(x), _constant_axes(x, dim), axis=0)
    none = op.Equal(op.ReduceProd(reduced, keepdims=0), constant(np.asarray(0, np.int64)))
    return op.Where(none, op.CastLike(constant(np.asarray(np.nan, np.float32)), result), result)


def var(x: ir.Value, unbiased: bool = True) -> ir.Value:
    """Return the variance of all elements."""
    return var_correction(x, None, correction=float(unbiased))


def var_dim(
    x: ir.Value, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False
) -> ir.Value:
    """Return the variances over the axes `dim`."""
    return var_correction(x, dim, correction=float(unbiased), keepdim=keepdim)


def var_correction(
    x: ir.Value,
    dim: Sequence[int] | None = None,
    correction: float | None = None,
    keepdim: bool = False,
) -> ir.Value:
    """Return sum((x - mean)^2) / max(n - correction, 0) over the axes `dim`, or over all.

    The gradient is that of sum((x - mean)^2) / (n - correction), as PyTorch has it.
    """
    free = 1.0 if correction is None else correction
    elements = count(x, dim)
    if elements is None and not 0 <= free <= 1:  # fewer elements than that divide by none
        raise NotImplementedError(f"a variance with correction {free} is open; fix its sizes")
    if free < 0 and elements:  # which the exporter takes for 0
        return op.Mul(_squares(x, dim, keepdim), number(1 / (elements - free), x))
    if elements is None or elements > max(free, 0):
        return _of_some(x, dim, _EXPORTED(x, axes_of(x, dim), free, keepdim))
    total = _squares(x, dim, keepdim)
    undefined = op.Div(total, number(0.0, x))
    if elements == free:
        return undefined
    slope = number(1 / (elements - free), x)
    return op.Add(stop(undefined), op.Mul(op.Sub(total, stop(total)), slope))


def _squares(x: ir.Value, dim: Sequence[int] | None, keepdim: bool) -> ir.Value:
    """Return the sums of (x - mean)^2 over the axes `dim`, or over all."""
    axes = _constant_axes(x, dim)
    away = op.Sub(x, stop(op.ReduceMean(x, axes, keepdims=1)))
    return op.ReduceSum(op.Mul(away, away), axes, keepdims=int(keepdim))


def var_mean(x: ir.Value, unbiased: bool = True) -> tuple[ir.Value, ir.Value]:
    """Return the variance and the mean of all elements."""
    return var_mean_correction(x, None, correction=float(unbiased))


def var_mean_dim(
    x: ir.Value, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False
) -> tuple[ir.Value, ir.Value]:
    """Return the variances and the means over the axes `dim`."""
    return var_mean_correction(x, dim, correction=float(unbiased), keepdim=keepdim)


def var_mean_correction(
    x: ir.Value,
    dim: Sequence[int] | None = None,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[ir.Value, ir.Value]:
    """Return the variances, as `var_correction` does, and the means."""
    return var_correction(x, dim, correction, keepdim), mean_dim(x, dim, keepdim)


def any_true(x: ir.Value) -> ir.Value:
    """Return whether any element is not 0."""
    return any_dims(x)


def any_dim(x: ir.Value, dim: int, keepdim: bool = False) -> ir.Value:
    """Return whether any element along the axis `dim` is not 0."""
    return any_dims(x, (dim,), keepdim)


def any_dims(x: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False) -> ir.Value:
    """Return whether any element along the axes `dim`, or of all, is not 0; of none, it is not.

    Without an axis in `dim` each element stands for itself, here alone in PyTorch.
    """
    true = op.Cast(x, to=ir.DataType.BOOL)
    if rank(x) == 0 or (dim is not None and not dim):
        return true
    whole = op.Cast(true, to=ir.DataType.INT64)
    most = op.ReduceMax(whole, _constant_axes(x, dim), keepdims=int(keepdim))
    return op.Greater(most, constant(np.asarray(0, np.int64)))


def all_dims(x: ir.Value, dim: Sequence[int] | None = None, keepdim: bool = False) -> ir.Value:
    """Return whether all elements along the axes `dim`, or all there are, are not 0.

    Without an axis in `dim` each element stands for itself, as in `any_dims`.
    """
    if dim is not None and not dim:
        return op.Cast(x, to=ir.DataType.BOOL)
    result: ir.Value = aten_all_dims(x, dim, keepdim)
    return result


def split(x: ir.Value, split_size: int | ir.Value, dim: int = 0) -> ir.Value:
    """Return a sequence of parts of `split_size` along the axis `dim`; of nothing there is one."""
    nothing = count(x, (dim,)) == 0
    parts: ir.Value = op.SequenceConstruct(x) if nothing else aten_split(x, split_size, dim)
    return parts


def count(x: ir.Value, dim: Sequence[int] | None) -> int | None:
    """Return how many elements are reduced to one; None if a size of them is open."""
    assert x.shape is not None
    sizes = [x.shape[axis] for axis in axes_of(x, dim)]
    known = [size for size in sizes if isinstance(size, int)]
    if 0 in known:
        return 0
    return math.prod(known) if len(known) == len(sizes) else None


def axes_of(x: ir.Value, dim: Sequence[int] | None) -> list[int]:
    """Return the axes `dim`, which are all of `x` if none are named."""
    return list(dim) if dim and rank(x) else list(range(rank(x)))


def _constant_axes(x: ir.Value, dim: Sequence[int] | None) -> ir.Value:
    return constant(np.asarray(axes_of(x, dim), np.int64))
