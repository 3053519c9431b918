"""Writing where a mask is true, in fixed sizes: the exporter looks for the places first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_index_put

from .operators import constant, number, op, sizes
from .scatter import masked_scatter


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
        result: ir.Value = aten_index_put(x, indices, values, accumulate)
        return result
    axis = next(place for place, index in enumerate(indices) if index is not None)
    return _put(x, masks[0], axis, values, accumulate)


def _put(x: ir.Value, mask: ir.Value, axis: int, values: ir.Value, accumulate: bool) -> ir.Value:
    """Write `values` where `mask`, which begins at `axis` of `x`, is true."""
    shape, masked, given = sizes(x), sizes(mask), sizes(values)
    values = op.CastLike(values, x)
    after = len(shape) - axis - len(masked)
    place = op.Reshape(mask, constant(np.asarray([*masked, *([1] * after)], np.int64)))
    # The places of the mask are one axis of the values, between those before it and after it.
    at = len(given) - 1 - after
    if at < 0 or given[at] == 1:
        spread = [*given[: max(at, 0)], *([1] * len(masked)), *given[at + 1 :]]
        own = given if at < 0 else spread
        new = op.Reshape(values, constant(np.asarray(own, np.int64)))
    elif axis == 0 and not accumulate:
        row = constant(np.asarray([given[0], *shape[len(masked) :]], np.int64))
        rows = op.Expand(values, row)
        rows.shape = ir.Shape((given[0], *shape[len(masked) :]))
        place.shape = ir.Shape((*masked, *([1] * after)))
        return masked_scatter(x, place, rows)
    else:
        raise NotImplementedError("as many values as a mask has places, but for its first axes")
    if accumulate:
        return op.Add(x, op.Where(place, new, number(0.0, x)))
    return op.Where(place, new, x)
