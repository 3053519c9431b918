"""Arithmetic of whole numbers and truth values, where the exporter loses their type or digits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_add,
    aten_bitwise_right_shift,
    aten_fmod,
    aten_pow,
)

from .operators import constant, filled, is_float, number, op, rank, size, typed


def add(x: ir.Value, y: ir.Value | float, alpha: float = 1) -> ir.Value:
    """X + alpha y; of truth values it is whether one of both is true."""
    x, y = _both(x, y)
    result: ir.Value = aten_add(x, y, alpha)
    return result


def power(x: ir.Value | float, exponent: ir.Value | float) -> ir.Value:
    """X to a power of the same type; of whole numbers it has all digits, or the lowest it can hold.

    It is a product of squares: onnxruntime goes by way of float64. Of a type of W bits, powers of
    odd numbers repeat after 2^(W - 2) at the latest, those of even ones are 0 from W on, and what
    is below 0 leaves -1 and 1 alone.
    """
    if isinstance(exponent, int) and isinstance(x, ir.Value) and not is_float(x) and exponent > 0:
        return _raised(x, exponent)
    x, exponent = _both(x, exponent)
    if is_float(x):
        result: ir.Value = aten_pow(x, exponent)
        return result
    assert x.dtype is not None
    width = 8 * int(x.dtype.itemsize)
    zero, one = number(0, x), number(1, x)
    bits = op.Cast(exponent, to=ir.DataType.UINT64)
    exact, square = one, x
    for place in range(width - 2):
        bit = op.BitwiseAnd(bits, constant(np.asarray(1 << place, np.uint64)))
        exact = op.Mul(exact, op.Where(op.Cast(bit, to=ir.DataType.BOOL), square, one))
        square = op.Mul(square, square)
    far = op.GreaterOrEqual(bits, constant(np.asarray(width, np.uint64)))
    even = op.Equal(op.Mul(op.Div(x, number(2, x)), number(2, x)), x)
    lost = op.And(far, even)
    if x.dtype in _UNSIGNED:
        unit = op.Or(op.Equal(x, one), _is_minus_one(x))
        lost = op.Or(lost, op.And(op.Less(exponent, zero), op.Not(unit)))
    return op.Where(lost, zero, exact)


def _raised(x: ir.Value, exponent: int) -> ir.Value:
    """X to a positive power that is known: with as few products as its bits ask for."""
    result, square = None, x
    while True:
        if exponent & 1:
            result = square if result is None else op.Mul(result, square)
        exponent >>= 1
        if not exponent:
            assert result is not None
            return result
        square = op.Mul(square, square)


def truncated(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """How often the whole number `y` goes into `x`, rounded towards 0.

    The lowest number by -1 is itself; onnxruntime has the processor divide, which ends the process.
    """
    x, y = _both(x, y)
    if x.dtype not in _UNSIGNED:
        return op.Div(x, y)
    return op.Where(_is_minus_one(y), op.Neg(x), op.Div(x, _divisor(y)))


def floored(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """The same, rounded down."""
    x, y = _both(x, y)
    quotient, zero = truncated(x, y), number(0, x)
    if x.dtype not in _UNSIGNED:
        return quotient
    rest = op.Sub(x, op.Mul(quotient, y))
    other = op.Xor(op.Less(rest, zero), op.Less(y, zero))
    misses = op.And(other, op.Not(op.Equal(rest, zero)))
    return op.Sub(quotient, op.Cast(misses, to=x.dtype))


def remainder(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """X - floored(x, y) y, of the sign of `y`."""
    x, y = _both(x, y)
    return op.Mod(x, y if x.dtype not in _UNSIGNED else _divisor(y))


def fmod(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """X - truncated(x, y) y, of the sign of `x`: of whole numbers without going by float64."""
    x, y = _both(x, y)
    if is_float(x):
        result: ir.Value = aten_fmod(x, y)
        return result
    return op.Sub(x, op.Mul(truncated(x, y), y))


def _is_minus_one(y: ir.Value) -> ir.Value:
    return op.Equal(y, number(-1, y))


def _divisor(y: ir.Value) -> ir.Value:
    """Return `y`, but 1 where it is -1: that divides any number without a rest as well."""
    return op.Where(_is_minus_one(y), number(1, y), y)


def shifted_left(x: ir.Value | int, y: ir.Value | int) -> ir.Value:
    """The bits of `x` moved up by `y` places, in the type of `x`, signed or not."""
    x, y = _both(x, y)
    assert x.dtype is not None
    unsigned = _UNSIGNED.get(x.dtype, x.dtype)
    bits = op.BitShift(op.Cast(x, to=unsigned), op.Cast(y, to=unsigned), direction="LEFT")
    return typed(op.Cast(bits, to=x.dtype), x)


def shifted_right(x: ir.Value | int, y: ir.Value | int) -> ir.Value:
    """The bits of `x` moved down by `y` places; the sign stays."""
    x, y = _both(x, y)
    if x.dtype in _UNSIGNED:
        result: ir.Value = aten_bitwise_right_shift(x, y)
        return result
    return op.BitShift(x, y, direction="RIGHT")


def unchanged(translate: Callable[[ir.Value], ir.Value]) -> Callable[[ir.Value], ir.Value]:
    """Return `translate`, a rounding, for numbers of which whole ones stay what they are."""

    def call(x: ir.Value) -> ir.Value:
        return translate(x) if is_float(x) else op.Identity(x)

    return call


def always(
    answer: bool, translate: Callable[[ir.Value], ir.Value]
) -> Callable[[ir.Value], ir.Value]:
    """Return `translate`, a question whose answer is the same for all whole numbers."""

    def call(x: ir.Value) -> ir.Value:
        if is_float(x):
            return translate(x)
        return filled(np.bool_(answer), *(size(x, axis) for axis in range(rank(x))))

    return call


def _both(x: ir.Value | float, y: ir.Value | float) -> tuple[ir.Value, ir.Value]:
    """Return both operands as values of the type of the one that is a tensor, if one is not."""
    if not isinstance(x, ir.Value):
        assert isinstance(y, ir.Value)
        return number(x, y), y
    return x, y if isinstance(y, ir.Value) else number(y, x)


_UNSIGNED = {
    ir.DataType.INT8: ir.DataType.UINT8,
    ir.DataType.INT16: ir.DataType.UINT16,
    ir.DataType.INT32: ir.DataType.UINT32,
    ir.DataType.INT64: ir.DataType.UINT64,
}
