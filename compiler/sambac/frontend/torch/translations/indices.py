"""Operators whose indices PyTorch counts from the start alone, while ONNX also does from the end.

What reads or writes at such indices gets them `from_the_start`, so that a negative one is an error
of the run. Plain indexing, `take` and `index_fill` know negative ones, and are not here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_bincount,
    aten_gather,
    aten_index,
    aten_index_select,
    aten_nonzero,
    aten_scatter_value,
)

from .operators import (
    constant,
    filled,
    from_the_start,
    lengths,
    merged,
    number,
    op,
    rank,
    reshaped,
    size,
    sizes,
    typed,
    with_axes,
)
from .scatter import PLACES, alike_places, index_put

Translation = Callable[..., ir.Value]


def at(place: int, translate: Translation) -> Translation:
    """Return `translate` for an operator whose argument number `place` holds indices."""

    def call(*operands: object, **settings: object) -> ir.Value:
        indices = operands[place]
        assert isinstance(indices, ir.Value)
        seen = from_the_start(indices)
        return translate(*operands[:place], seen, *operands[place + 1 :], **settings)

    return call


def gather(x: ir.Value, dim: int, index: ir.Value, sparse_grad: bool = False) -> ir.Value:
    """Elements of `x` along the axis `dim`; a scalar has one."""
    if rank(x) == 0:
        return op.Gather(with_axes(x, 1), from_the_start(index))
    result: ir.Value = at(2, aten_gather)(x, dim, index, sparse_grad)
    return result


def index(x: ir.Value, indices: Sequence[ir.Value | None]) -> ir.Value:
    """Return `x[indices]`, where None stands for a whole axis.

    One tensor of whole numbers is looked up along its axis; the exporter's form moves that axis to
    the front and back.
    """
    given = [(axis, each) for axis, each in enumerate(indices) if each is not None]
    types = {each.dtype for _, each in given}
    if len(given) == 1 and types <= PLACES:
        ((axis, places),) = given
        return op.Gather(x, places, axis=axis)
    result: ir.Value = aten_index(x, alike_places(indices))
    return result


index_select = at(2, aten_index_select)
scatter_value = at(2, aten_scatter_value)
bincount = at(0, aten_bincount)


def index_add(
    x: ir.Value, dim: int, index: ir.Value, source: ir.Value, alpha: float = 1
) -> ir.Value:
    """Return `x` with the slices of `source`, times `alpha`, added at `index` along `dim`."""
    if alpha != 1:
        source = typed(op.Mul(source, op.CastLike(alpha, source)), source)
    return _put(x, dim, index, source, accumulate=True)


def index_copy(x: ir.Value, dim: int, index: ir.Value, source: ir.Value) -> ir.Value:
    """Return `x` with the slices of `source` in place of its own at `index` along `dim`."""
    return _put(x, dim, index, source, accumulate=False)


def _put(x: ir.Value, dim: int, index: ir.Value, source: ir.Value, *, accumulate: bool) -> ir.Value:
    if rank(x) == 0:
        flat = [value if rank(value) else with_axes(value, 1) for value in (x, index, source)]
        return reshaped(_put(flat[0], 0, flat[1], flat[2], accumulate=accumulate), ())
    index = index if rank(index) else with_axes(index, 1)
    places = [None] * (dim % rank(x)) + [from_the_start(index)]
    return index_put(x, places, source, accumulate)


def put(x: ir.Value, index: ir.Value, source: ir.Value, accumulate: bool = False) -> ir.Value:
    """Return `x` with the elements of `source` at `index` among all elements of `x` in a row.

    Indices count from the end where they are negative.
    """
    flat = [reshaped(value, (math.prod(sizes(value)),)) for value in (x, index, source)]
    return reshaped(index_put(flat[0], [flat[1]], flat[2], accumulate), sizes(x))


def index_fill(x: ir.Value, dim: int, index: ir.Value, value: ir.Value | float) -> ir.Value:
    """Return `x` with `value` at `index` along `dim`, which counts from the end where negative.

    What is filled twice is so once for the gradient of `value`.
    """
    if rank(x) == 0:
        return reshaped(index_fill(with_axes(x, 1), 0, index, value), ())
    index = index if rank(index) else with_axes(index, 1)
    if not isinstance(value, ir.Value):
        content = number(value, x)
        content.shape = ir.Shape(())
        return index_put(x, [None] * (dim % rank(x)) + [index], content)
    none = op.Expand(constant(np.zeros(1, np.int32)), lengths(size(x, dim)))
    ones = op.Expand(constant(np.ones(1, np.int32)), op.Shape(index))
    hit = op.Cast(op.ScatterElements(none, index, ones), to=ir.DataType.BOOL)
    behind = rank(x) - 1 - dim % rank(x)
    mask = op.Unsqueeze(hit, list(range(1, behind + 1))) if behind else hit
    return typed(op.Where(mask, op.CastLike(value, x), x), x)


def nonzero(x: ir.Value) -> ir.Value:
    """Return the places of what is not 0, a row each; that in a scalar has no axes."""
    if rank(x):
        result: ir.Value = aten_nonzero(x)
        return result
    return op.Slice(aten_nonzero(with_axes(x, 1)), [0], [0], [1])


def one_hot(indices: ir.Value, num_classes: int = -1) -> ir.Value:
    """Vectors of `num_classes` numbers along a new last axis: 1 at the index, else 0.

    The indices are looked up among all there are, as ONNX takes those that are none for zeros.
    """
    if num_classes < 0:
        raise NotImplementedError("one_hot without num_classes, whose size depends on values")
    classes = constant(np.arange(num_classes, dtype=np.int64))
    known = op.Unsqueeze(op.Gather(classes, from_the_start(indices)), [-1])
    result = op.Cast(op.Equal(known, classes), to=ir.DataType.INT64)
    result.dtype = ir.DataType.INT64
    return result


def unpool(
    x: ir.Value, indices: ir.Value, output_size: Sequence[int], *windows: object
) -> ir.Value:
    """Put the elements of `x` [..., C, ...] at `indices` of flat planes, and 0 elsewhere.

    The exporter numbers all planes on, so that an index may lie in the one before.
    """
    axes = len(output_size)
    outer = [size(x, axis) for axis in range(rank(x) - axes)]
    assert x.dtype is not None
    none = filled(x.dtype.numpy().type(0), *outer, math.prod(output_size))
    flat = [merged(value, axes) for value in (from_the_start(indices), x)]
    found = op.ScatterElements(none, *flat, axis=len(outer))
    shape = lengths(*outer, *output_size)
    return op.Reshape(found, shape, allowzero=1)
