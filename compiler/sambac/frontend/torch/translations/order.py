"""Elements by their rank among others: medians, the k-th smallest, the most frequent.

NaN is the largest of all. Which of equal elements is found PyTorch leaves open; here it is the
first of them where one is asked for.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from .limits import flat, sort, unknown
from .operators import constant, is_float, lengths, number, op, rank, size, stop

Found = tuple[ir.Value, ir.Value]


def kthvalue(x: ir.Value, k: int, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the `k`-th smallest elements along the axis `dim`, and where they lie."""
    if rank(x) == 0:
        return op.Identity(x), constant(np.asarray(0, np.int64))
    axis = dim % rank(x)
    places = op.Slice(sort(x, axis)[1], [k - 1], [k], [axis])
    return _at(x, places, axis, keepdim)


def mode(x: ir.Value, dim: int = -1, keepdim: bool = False) -> Found:
    """Return the most frequent elements along the axis `dim`, and where the last of each lies.

    Of those that are as frequent it is the smallest.
    """
    if rank(x) == 0:
        return op.Identity(x), constant(np.asarray(0, np.int64))
    axis = dim % rank(x)
    in_order, places = sort(x, axis)
    pairs = op.Equal(op.Unsqueeze(in_order, [axis]), op.Unsqueeze(in_order, [axis + 1]))
    counts = op.ReduceSum(op.Cast(pairs, to=ir.DataType.INT64), _axes(axis), keepdims=0)
    begin = op.ArgMax(counts, axis=axis, keepdims=1)
    count = op.Max(op.GatherElements(counts, begin, axis=axis), _one())  # a NaN is equal to none
    end = op.Sub(op.Add(begin, count), _one())
    return _at(x, op.GatherElements(places, end, axis=axis), axis, keepdim)


def _one() -> ir.Value:
    return constant(np.asarray([1], np.int64))


def median(x: ir.Value, dim: int, keepdim: bool = False) -> Found:
    """Return the lower medians along the axis `dim`, NaN if one is, and where they lie."""
    return _medians(x, dim, keepdim, _of_all)


def nanmedian(x: ir.Value, dim: int, keepdim: bool = False) -> Found:
    """Return the lower medians along the axis `dim` of what is not NaN, and where they lie."""
    return _medians(x, dim, keepdim, _of_numbers)


def median_of_all(x: ir.Value) -> ir.Value:
    """Return the lower median of all elements, NaN if one is; equal ones share the gradient."""
    return _shared(x, median(flat(x), 0)[0])


def nanmedian_of_all(x: ir.Value) -> ir.Value:
    """Return the lower median of all that are not NaN; equal ones share the gradient."""
    return _shared(x, nanmedian(flat(x), 0)[0])


_Places = Callable[[ir.Value, int], ir.Value]


def _medians(x: ir.Value, dim: int, keepdim: bool, middle: _Places) -> Found:
    if rank(x) == 0:
        return op.Identity(x), constant(np.asarray(0, np.int64))
    axis = dim % rank(x)
    places = op.GatherElements(sort(x, axis)[1], middle(x, axis), axis=axis)
    return _at(x, places, axis, keepdim)


def _of_all(x: ir.Value, axis: int) -> ir.Value:
    """Return the rank of each median; the last one, where NaN are, if there is one."""
    count = lengths(size(x, axis))
    lower = _half(count)
    one = [1 if other == axis else size(x, other) for other in range(rank(x))]
    if not is_float(x):
        return op.Expand(lower, lengths(*one))
    none = op.ReduceMax(unknown(x), _axes(axis))
    numbers = op.Sub(count, _number_of_unknown(x, axis))
    return op.Where(op.Cast(none, to=ir.DataType.BOOL), numbers, lower)


def _of_numbers(x: ir.Value, axis: int) -> ir.Value:
    if not is_float(x):
        return _of_all(x, axis)
    count = op.Sub(lengths(size(x, axis)), _number_of_unknown(x, axis))
    return _half(op.Max(count, _one()))


def _number_of_unknown(x: ir.Value, axis: int) -> ir.Value:
    return op.ReduceSum(op.Cast(unknown(x), to=ir.DataType.INT64), _axes(axis))


def _half(count: ir.Value) -> ir.Value:
    """Return the rank of the lower median of `count` elements."""
    return op.Div(op.Sub(count, _one()), constant(np.asarray([2], np.int64)))


def _axes(axis: int) -> ir.Value:
    return constant(np.asarray([axis], np.int64))


def _at(x: ir.Value, places: ir.Value, axis: int, keepdim: bool) -> Found:
    found = op.GatherElements(x, places, axis=axis)
    return (found, places) if keepdim else (op.Squeeze(found, [axis]), op.Squeeze(places, [axis]))


def _shared(x: ir.Value, found: ir.Value) -> ir.Value:
    """Return `found`, one of the elements of `x`, whose gradient equal ones share."""
    if not is_float(x):
        return found
    found = stop(found)
    equal = op.Or(op.Equal(x, found), op.And(op.IsNaN(x), op.IsNaN(found)))
    count = op.ReduceSum(op.CastLike(equal, x), keepdims=0)
    mean = op.ReduceSum(op.Div(op.Where(equal, x, number(0.0, x)), count), keepdims=0)
    infinite = op.Or(op.IsInf(found), op.IsNaN(found))
    return op.Where(infinite, mean, op.Add(found, op.Sub(mean, stop(mean))))
