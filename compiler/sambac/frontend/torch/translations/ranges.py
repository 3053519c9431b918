"""Numbers at equal distances between two tensors, or repeated; tensors written over others."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_repeat_interleave_Tensor

from .operators import constant, number, op, reshaped, sizes, stop, typed


def linspace(
    start: ir.Value | float, end: ir.Value | float, steps: int, dtype: int = -1, **_: object
) -> ir.Value:
    """`steps` numbers from `start` to `end` at equal distances, which PyTorch gives no gradient.

    `dtype` is ONNX's number of their type. They are computed in float64, as PyTorch computes whole
    numbers, and from the nearer end.
    """
    kind = _type(dtype)
    return op.Cast(_spaced(_end(start, kind), _end(end, kind), steps), to=kind)


def logspace(
    start: ir.Value | float,
    end: ir.Value | float,
    steps: int,
    base: float = 10.0,
    dtype: int = -1,
    **_: object,
) -> ir.Value:
    """`base` to the power of such numbers, of which a single one is not cut to a whole number."""
    kind = _type(dtype)
    cut = kind if steps > 1 else ir.DataType.DOUBLE
    powers = _spaced(_end(start, cut), _end(end, cut), steps)
    return op.Cast(op.Pow(number(base, powers), powers), to=kind)


def _type(dtype: int | None) -> ir.DataType:
    return ir.DataType.FLOAT if dtype in (None, -1) else ir.DataType(dtype)


def _end(content: ir.Value | float, kind: ir.DataType) -> ir.Value:
    """Return an end in float64, cut to a whole number if such are wanted."""
    if not isinstance(content, ir.Value):
        wanted = content if kind.is_floating_point() else int(content)
        return constant(np.asarray(wanted, np.float64))
    cut = typed(stop(content), content)
    if not kind.is_floating_point():
        cut = op.Cast(cut, to=kind)
    wide = op.Cast(cut, to=ir.DataType.DOUBLE)
    wide.dtype, wide.shape = ir.DataType.DOUBLE, ir.Shape(())
    return wide


def _spaced(start: ir.Value, end: ir.Value, steps: int) -> ir.Value:
    if steps < 2:
        return reshaped(start, (1,)) if steps else constant(np.zeros(0, np.float64))
    step = op.Div(op.Sub(end, start), number(steps - 1, start))
    low = np.arange(steps // 2, dtype=np.float64)
    high = np.arange(steps // 2, steps, dtype=np.float64)
    first = op.Add(start, op.Mul(step, constant(low)))
    last = op.Sub(end, op.Mul(step, constant(steps - 1 - high)))
    result = op.Concat(first, last, axis=0)
    result.dtype, result.shape = ir.DataType.DOUBLE, ir.Shape((steps,))
    return result


def repeated(repeats: ir.Value, output_size: int | None = None) -> ir.Value:
    """Return each place i of `repeats` as often as it says there, `output_size` in all."""
    places: ir.Value = aten_repeat_interleave_Tensor(repeats)
    return reshaped(places, (output_size,)) if isinstance(output_size, int) else places


def copied(x: ir.Value, source: ir.Value, non_blocking: bool = False) -> ir.Value:
    """Return `source` as numbers of the type and the shape of `x`, to which it broadcasts."""
    assert x.dtype is not None
    cast = op.CastLike(source, x)
    cast.dtype, cast.shape = x.dtype, source.shape
    if x.shape is not None and source.shape is not None and x.shape == source.shape:
        return cast
    try:
        shape = constant(np.asarray(sizes(x), np.int64))
    except NotImplementedError:
        shape = op.Shape(x)
    return op.Expand(cast, shape)
