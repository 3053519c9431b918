"""Embeddings, and their sums, means and maxima over bags.

A row that is not to learn no ONNX operator knows, and of bags the exporter makes loops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from .operators import (
    Size,
    constant,
    counted,
    filled,
    from_the_start,
    lengths,
    more,
    op,
    size,
    sizes,
    stop,
)

_SUM, _MEAN, _MAX = range(3)
"""As PyTorch numbers the modes."""


def embedding_bag(
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> tuple[ir.Value, ...]:
    """Reduce the rows of `weight` [V, E] that `indices` [N] name, bag by bag, to [B, E].

    Bag b begins at `offsets[b]` and ends where the next one does; an empty one is zero. Rows
    `padding_idx` are in no bag. A place before the first bag or behind the last is an error of the
    run: PyTorch refuses the one, and reduces the other in some modes only. The other results of the
    operator, which only its own backward pass reads, are stand-ins.
    """
    if scale_grad_by_freq:
        raise NotImplementedError("embeddings with scale_grad_by_freq do not train")
    count, bags = size(indices, 0), more(size(offsets, 0), -int(include_last_offset))
    rows_of_all, width = sizes(weight)
    rows = op.Gather(weight, from_the_start(indices))
    if per_sample_weights is not None:
        rows = op.Mul(rows, op.Unsqueeze(per_sample_weights, [-1]))
    bag = _bag_of_each(offsets, count, bags, closed=include_last_offset)
    if padding_idx is not None:
        padding = op.Equal(indices, op.CastLike(padding_idx % rows_of_all, indices))
        bag = op.Where(padding, op.CastLike(bags, bag), bag)  # one more, which is dropped
    places = op.Expand(op.Unsqueeze(bag, [-1]), lengths(count, width))
    assert weight.dtype is not None
    bags_and_one = _Bags(more(bags, 1), width, weight.dtype.numpy())
    result = _reduced(rows, places, mode, bags_and_one, count)
    return (
        op.Slice(result, [0], lengths(bags), [0]),
        bag,
        op.Identity(offsets),
        op.Identity(offsets),
    )


def decomposed_bag(
    weight: ir.Value,
    indices: ir.Value,
    offsets: ir.Value,
    scale_grad_by_freq: bool = False,
    mode: int = _SUM,
    sparse: bool = False,
    per_sample_weights: ir.Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[ir.Value, ...]:
    """Return the same, as decomposed programs have it: a negative `padding_idx` is none."""
    return embedding_bag(
        weight,
        indices,
        offsets,
        scale_grad_by_freq,
        mode,
        sparse,
        per_sample_weights,
        include_last_offset,
        padding_idx if padding_idx >= 0 else None,
    )


def _bag_of_each(offsets: ir.Value, count: Size, bags: Size, *, closed: bool) -> ir.Value:
    """Return the number of the bag that each of `count` places lies in, which it has to.

    If they are `closed` the last offset is where the last bag ends; places behind it get a number
    that is out of range.
    """
    begins = op.Cast(from_the_start(offsets), to=ir.DataType.INT64)
    one = filled(np.int64(1), more(bags, int(closed)))
    none = filled(np.int64(0), more(count, 1))  # bags at the very end are empty
    marks = op.ScatterElements(none, begins, one, axis=0, reduction="add")
    begun = op.CumSum(marks, constant(np.asarray(0, np.int64)))
    numbers = op.Sub(begun, constant(np.asarray(1, np.int64)))
    found = op.Slice(numbers, [0], lengths(count), [0])
    found.dtype = ir.DataType.INT64
    known = op.Concat(counted(bags), lengths(more(bags, 1)), axis=0)
    return op.Gather(known, from_the_start(found))


@dataclass(frozen=True)
class _Bags:
    """Rows that elements are reduced to."""

    rows: Size
    width: int
    dtype: np.dtype

    def of(self, content: float) -> ir.Value:
        """Return the table full of `content`."""
        return filled(self.dtype.type(content), self.rows, self.width)


def _reduced(rows: ir.Value, places: ir.Value, mode: int, table: _Bags, count: Size) -> ir.Value:
    """Return the sums, means or maxima of the `count` rows by place; zeros without any."""
    zeros = table.of(0)
    if mode == _SUM:
        return op.ScatterElements(zeros, places, rows, axis=0, reduction="add")
    ones = filled(table.dtype.type(1), count, table.width)
    number = op.ScatterElements(zeros, places, ones, axis=0, reduction="add")
    if mode == _MEAN:
        total = op.ScatterElements(zeros, places, rows, axis=0, reduction="add")
        one = constant(np.ones((), table.dtype))
        return op.Div(total, op.Max(number, one))
    return op.Where(op.Greater(number, 0.0), _first_largest(rows, places, table, count), zeros)


def _first_largest(rows: ir.Value, places: ir.Value, table: _Bags, count: Size) -> ir.Value:
    """Return the first of the largest elements of each bag, which alone gets the gradient.

    As PyTorch keeps an element until a larger one comes, a NaN counts where a bag begins with it,
    and nowhere else.
    """
    lowest, beyond = constant(np.asarray(-np.inf, table.dtype)), lengths(count)
    known = op.Where(op.IsNaN(rows), lowest, stop(rows))
    largest = op.ScatterElements(table.of(-np.inf), places, known, axis=0, reduction="max")
    equal = op.Equal(rows, op.GatherElements(largest, places, axis=0))
    order = op.Expand(op.Unsqueeze(counted(count), [-1]), lengths(count, table.width))
    none = op.Expand(beyond, lengths(table.rows, table.width))
    padded = op.Concat(rows, filled(table.dtype.type(np.nan), 1, table.width), axis=0)

    def first(candidates: ir.Value) -> ir.Value:
        place = op.ScatterElements(none, places, candidates, axis=0, reduction="min")
        return op.GatherElements(padded, place, axis=0)

    begin = first(order)
    best = first(op.Where(equal, order, beyond))
    return op.Where(op.IsNaN(begin), begin, best)


def looked_up(
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """Rows of `weight` [V, E]; a negative index is an error in a run, as it is for PyTorch.

    The other arguments are about gradients alone.
    """
    return op.Gather(weight, from_the_start(indices))


def embedding(
    weight: ir.Value,
    indices: ir.Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> ir.Value:
    """Rows of `weight` [V, E]; no gradient reaches the row `padding_idx`, unless it is negative.

    Gradients are dense whether `sparse` or not, which changes no plain optimizer's result.
    """
    if scale_grad_by_freq:
        raise NotImplementedError("embeddings with scale_grad_by_freq do not train")
    rows = looked_up(weight, indices)
    if padding_idx < 0:
        return rows
    padding = op.Equal(indices, op.CastLike(padding_idx, indices))
    return op.Where(op.Unsqueeze(padding, [-1]), stop(rows), rows)
