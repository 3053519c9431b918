"""Scattering: by a mask with fixed sizes, and means, of which the exporter keeps the last."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_scatter_add,
    aten_scatter_reduce,
    aten_scatter_src,
)

from .operators import constant, op, sizes


def scatter(x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """Put the elements of `src` that `index` has a place for into `x`, along axis `dim`."""
    result: ir.Value = aten_scatter_src(x, dim, index, _corner(src, index))
    return result


def scatter_add(x: ir.Value, dim: int, index: ir.Value, src: ir.Value) -> ir.Value:
    """Add the elements of `src` that `index` has a place for to `x`, along axis `dim`."""
    result: ir.Value = aten_scatter_add(x, dim, index, _corner(src, index))
    return result


def scatter_reduce(
    x: ir.Value,
    dim: int,
    index: ir.Value,
    src: ir.Value,
    reduce: str,
    include_self: bool = True,
) -> ir.Value:
    """Reduce the elements of `src` that `index` sends to each place of `x` along axis `dim`.

    A mean is sum / count: of the sent elements, and of the one in `x` if `include_self` or if
    none is sent. Shapes: `index` [...], `src` at least as large, `x` of the same rank.
    """
    if reduce != "mean":
        src = _corner(src, index)
        result: ir.Value = aten_scatter_reduce(x, dim, index, src, reduce, include_self)
        return result
    if src.dtype is None or not src.dtype.is_floating_point() or not sizes(x):
        raise NotImplementedError("scatter_reduce to means of integers or to a scalar")
    dtype, settings = src.dtype.numpy(), {"axis": dim, "reduction": "add"}
    sent = constant(np.ones(sizes(index), dtype))
    none = constant(np.zeros(sizes(x), dtype))
    count = op.ScatterElements(none, index, sent, **settings)
    if include_self:
        total = op.ScatterElements(x, index, _corner(src, index), **settings)
        return op.Div(total, op.Add(count, 1.0))
    kept = op.Where(op.Greater(count, 0.0), none, x)
    total = op.ScatterElements(kept, index, _corner(src, index), **settings)
    return op.Div(total, op.Max(count, 1.0))


def masked_scatter(x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """Put the elements of `source`, one after the other, where `mask` is true; else keep `x`.

    `x` and `mask` broadcast. The exporter's form has indices whose number depends on the mask.
    """
    shape = constant(np.asarray(np.broadcast_shapes(sizes(x), sizes(mask)), np.int64))
    x, mask = op.Expand(x, shape), op.Expand(mask, shape)
    taken = op.CumSum(op.Cast(op.Reshape(mask, [-1]), to=ir.DataType.INT64), 0)
    place = op.Max(op.Sub(taken, 1), op.Constant(value_ints=[0]))
    last = op.Constant(value_ints=[math.prod(sizes(source)) - 1])
    found = op.Gather(op.Reshape(source, [-1]), op.Min(place, last))
    return op.Where(mask, op.Reshape(found, shape), x)


def _corner(src: ir.Value, index: ir.Value) -> ir.Value:
    """Return the elements of `src` that `index` has a place for."""
    ends = sizes(index)
    if ends == sizes(src):
        return src
    result = op.Slice(src, [0] * len(ends), list(ends))
    result.shape = index.shape
    return result
