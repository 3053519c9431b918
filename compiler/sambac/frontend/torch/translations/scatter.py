"""Scattering: by a mask with fixed sizes; means, of which the exporter keeps the last; extrema.

Where a mask is true the exporter looks for the places first, whose number is not known then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_index_put,
    aten_scatter_add,
    aten_scatter_reduce,
    aten_scatter_src,
)

from .operators import (
    constant,
    converted,
    from_the_start,
    is_float,
    lengths,
    number,
    op,
    rank,
    reshaped,
    size,
    sizes,
    stop,
)

PLACES = frozenset({ir.DataType.INT32, ir.DataType.INT64})
"""Types of whole numbers that say where."""


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
    if x.dtype == ir.DataType.BOOL and reduce in _EXTREMA:  # of which onnxruntime has no extrema
        whole, sent = (converted(value, ir.DataType.INT32) for value in (x, src))
        found = scatter_reduce(whole, dim, index, sent, reduce, include_self)
        return op.Cast(found, to=ir.DataType.BOOL)
    if reduce != "mean":
        src = _corner(src, index)
        if reduce in _EXTREMA and is_float(x) and rank(x):
            return _extremum(x, index, src, _Extremum(dim, *_EXTREMA[reduce]), include_self)
        result: ir.Value = aten_scatter_reduce(x, dim, index, src, reduce, include_self)
        return result
    if src.dtype is None or not src.dtype.is_floating_point() or not rank(x):
        raise NotImplementedError("scatter_reduce to means of integers or to a scalar")
    dtype, settings = src.dtype.numpy(), {"axis": dim, "reduction": "add"}
    sent, none = _filled(index, dtype.type(1)), _filled(x, dtype.type(0))
    count = op.ScatterElements(none, index, sent, **settings)
    if include_self:
        total = op.ScatterElements(x, index, _corner(src, index), **settings)
        return op.Div(total, op.Add(count, 1.0))
    kept = op.Where(op.Greater(count, 0.0), none, x)
    total = op.ScatterElements(kept, index, _corner(src, index), **settings)
    return op.Div(total, op.Max(count, 1.0))


def index_reduce(
    x: ir.Value,
    dim: int,
    index: ir.Value,
    source: ir.Value,
    reduce: str,
    *,
    include_self: bool = True,
) -> ir.Value:
    """Reduce the slices of `source` that `index` [N] sends to each of `x` along axis `dim`.

    `source` has the shape of `x`, but N slices.
    """
    if rank(x) == 0:
        line, place, sent = (reshaped(value, (1,)) for value in (x, index, source))
        return reshaped(scatter_reduce(line, 0, place, sent, reduce, include_self), ())
    axes = [axis for axis in range(rank(x)) if axis != dim % rank(x)]
    index = index if rank(index) else reshaped(index, (1,))
    everywhere = op.Expand(op.Unsqueeze(index, axes) if axes else index, op.Shape(source))
    everywhere.dtype, everywhere.shape = index.dtype or ir.DataType.INT64, source.shape
    return scatter_reduce(x, dim, everywhere, source, reduce, include_self)


# By the name that PyTorch gives a reduction of parts: that of scatter_reduce, what it begins with.
_PARTS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "prod": ("prod", 1.0),
}


def segment_reduce(
    data: ir.Value,
    reduce: str,
    lengths: ir.Value | None = None,
    indices: ir.Value | None = None,
    offsets: ir.Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> ir.Value:
    """Reduce parts of `data` [N, ...] that follow one another, `lengths` [B] of them, to [B, ...].

    Lengths that do not sum to N are an error of the run, with `unsafe` too. An infinite extremum
    shares its gradient with what it begins with.
    """
    if lengths is None or rank(lengths) != 1 or axis:
        raise NotImplementedError(
            "segment_reduce by other than lengths [B] of parts of the first axis; give these"
        )
    (count, *row), (parts,) = sizes(data), sizes(lengths)
    assert data.dtype is not None
    reduction, neutral = _PARTS[reduce]
    counts = op.Cast(from_the_start(lengths), to=ir.DataType.INT64)
    ones = constant(np.ones(len(row), np.int64))
    place = op.Reshape(_part_of_each(counts, parts, count), op.Concat([count], ones, axis=0))
    index = op.Expand(place, op.Shape(data))
    index.dtype, index.shape = ir.DataType.INT64, data.shape
    extreme = reduction in _EXTREMA
    begin = neutral if initial is None or extreme else initial
    none = constant(np.full((parts, *row), begin, data.dtype.numpy()))
    result = scatter_reduce(none, 0, index, data, reduction)
    if extreme and initial is not None:
        first, beats = number(initial, data), op.Greater if reduction == "amax" else op.Less
        return op.Where(beats(first, result), first, result)
    if reduce != "mean":
        return result
    number_of = op.CastLike(op.Reshape(counts, op.Concat([parts], ones, axis=0)), data)
    return op.Div(result, number_of if initial is None else op.Max(number_of, 1.0))


def _part_of_each(counts: ir.Value, parts: int, count: int) -> ir.Value:
    """Return in which of `parts` each of `count` rows lies; none of them if `counts` are others."""
    ends = op.CumSum(counts, constant(np.asarray(0, np.int64)))
    rows = constant(np.arange(count, dtype=np.int64)[:, None])
    before = op.Cast(op.GreaterOrEqual(rows, ends), to=ir.DataType.INT64)
    wrong = op.Not(op.Equal(op.ReduceSum(counts, keepdims=0), count))
    beyond = op.Mul(op.Cast(wrong, to=ir.DataType.INT64), parts)
    return op.Add(op.ReduceSum(before, [1], keepdims=0), beyond)


def masked_scatter(x: ir.Value, mask: ir.Value, source: ir.Value) -> ir.Value:
    """Put the elements of `source`, one after the other, where `mask` is true; else keep `x`.

    `x` and `mask` broadcast. The exporter's form has indices whose number depends on the mask.
    """
    x = op.Expand(x, _shape(mask))
    mask = op.Expand(mask, op.Shape(x))
    if source.shape is not None and 0 in source.shape:  # PyTorch refuses all but an empty mask
        nothing = math.nan if is_float(x) else 0
        return op.Where(mask, number(nothing, x), x)
    content = op.Reshape(source, [-1])
    if source.shape is None or not source.shape.is_static():  # there may be none in a run
        content = op.Concat(content, op.Reshape(number(0.0, x), [1]), axis=0)
    taken = op.CumSum(op.Cast(op.Reshape(mask, [-1]), to=ir.DataType.INT64), 0)
    place = op.Max(op.Sub(taken, 1), op.Constant(value_ints=[0]))
    last = op.Sub(op.Size(content), 1)
    found = op.Gather(content, op.Min(place, last))
    return op.Where(mask, op.Reshape(found, op.Shape(x)), x)


@dataclass(frozen=True)
class _Extremum:
    axis: int
    reduction: str
    worst: float
    """What any element beats."""

    def of(self, x: ir.Value, index: ir.Value, src: ir.Value) -> ir.Value:
        """Return `x` with the extrema of what is there and what is sent there."""
        return op.ScatterElements(x, index, src, axis=self.axis, reduction=self.reduction)


_EXTREMA = {"amax": ("max", -math.inf), "amin": ("min", math.inf)}


def _extremum(
    x: ir.Value, index: ir.Value, src: ir.Value, extremum: _Extremum, include_self: bool
) -> ir.Value:
    """Return the extrema of `src` by place, and of `x` too if `include_self`; NaN if one is NaN.

    Equals share the gradient. Without `include_self`, what is in `x` gets none, but PyTorch counts
    it among the equals all the same.
    """
    if not include_self:
        worst = number(extremum.worst, x)
        sent = op.Expand(worst, _shape(index))
        begin = op.ScatterElements(x, index, sent, axis=extremum.axis)
        best = extremum.of(stop(begin), index, stop(src))
        hidden = op.Where(op.Equal(stop(x), best), stop(x), worst)
        reached = op.ScatterElements(
            _filled(x, np.int64(0)),
            index,
            _filled(index, np.int64(1)),
            axis=extremum.axis,
        )
        x = op.Where(op.Equal(reached, constant(np.asarray(1, np.int64))), hidden, x)
    unknown = op.ScatterElements(
        _is_nan(x), index, _is_nan(src), axis=extremum.axis, reduction="max"
    )
    result = extremum.of(x, index, src)
    return op.Where(op.Greater(unknown, 0.0), number(math.nan, x), result)


def _is_nan(x: ir.Value) -> ir.Value:
    return op.Cast(op.IsNaN(x), to=int(ir.DataType.FLOAT))


def _corner(src: ir.Value, index: ir.Value) -> ir.Value:
    """Return the elements of `src` that `index` has a place for."""
    assert src.shape is not None
    assert index.shape is not None
    pairs = enumerate(zip(index.shape, src.shape, strict=True))
    axes = [axis for axis, (end, size) in pairs if end != size or end == ir.SymbolicDim(None)]
    if not axes:
        return src
    known = all(index.shape.is_static(axis) for axis in axes)
    ends = list(sizes(index, *axes)) if known else op.Gather(op.Shape(index), axes)
    result = op.Slice(src, [0] * len(axes), ends, axes)
    result.shape = index.shape
    return result


def _shape(x: ir.Value) -> ir.Value:
    """Return the shape of `x`, which a program computes where sizes are open."""
    if x.shape is None or not x.shape.is_static():
        return op.Shape(x)
    return constant(np.asarray(sizes(x), np.int64))


def _filled(x: ir.Value, content: np.generic) -> ir.Value:
    """Return a tensor of the shape of `x` that holds `content` everywhere."""
    if x.shape is None or not x.shape.is_static():
        return op.Expand(constant(np.asarray(content)), op.Shape(x))
    return constant(np.full(sizes(x), content))


def alike_places(indices: Sequence[ir.Value | None]) -> Sequence[ir.Value | None]:
    """Return `indices` of one type, where there are whole numbers of several."""
    if not {each.dtype for each in indices if each is not None} >= PLACES:
        return indices
    return [
        converted(each, ir.DataType.INT64) if each and each.dtype in PLACES else each
        for each in indices
    ]


def index_put(
    x: ir.Value,
    indices: Sequence[ir.Value | None],
    values: ir.Value,
    accumulate: bool = False,
) -> ir.Value:
    """Return `x` with `values` at `indices`, or with them added there if `accumulate`.

    Where a single index is a mask, `values` are one number or row for all of its places, or as
    many as the mask has, one after the other.
    """
    masks = [index for index in indices if index is not None and index.dtype == ir.DataType.BOOL]
    given = [index for index in indices if index is not None]
    if len(masks) != 1 or len(given) != 1:
        result: ir.Value = aten_index_put(x, alike_places(indices), values, accumulate)
        return result
    axis = next(place for place, index in enumerate(indices) if index is not None)
    return _put(x, masks[0], axis, values, accumulate)


def _put(x: ir.Value, mask: ir.Value, axis: int, values: ir.Value, accumulate: bool) -> ir.Value:
    """Write `values` where `mask`, which begins at `axis` of `x`, is true."""
    assert values.shape is not None
    assert x.shape is not None
    assert mask.shape is not None
    given, count = [size(values, at) for at in range(rank(values))], rank(mask)
    first = values.shape[:1]
    values = op.CastLike(values, x)
    after = rank(x) - axis - count
    place = op.Unsqueeze(mask, list(range(count, count + after))) if after else mask
    # The places of the mask are one axis of the values, between those before it and after it.
    at = len(given) - 1 - after
    if at < 0 or given[at] == 1:
        spread = [*given[: max(at, 0)], *([1] * count), *given[at + 1 :]]
        own = given if at < 0 else spread
        new = op.Reshape(values, lengths(*own))
    elif axis == 0 and not accumulate:
        row = (given[0], *(size(x, at) for at in range(count, rank(x))))
        rows = op.Expand(values, lengths(*row))
        rows.shape = ir.Shape((*first, *x.shape[count:]))
        place.shape = ir.Shape((*mask.shape, *([1] * after)))
        return masked_scatter(x, place, rows)
    else:
        raise NotImplementedError("as many values as a mask has places, but for its first axes")
    if accumulate:
        return op.Add(x, op.Where(place, new, number(0.0, x)))
    return op.Where(place, new, x)
