"""Special functions whose usual formulas overflow, cancel, or have no slope at some point."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import (
    aten_div_mode,
    aten_pow_tensor_scalar,
    aten_sign,
)

from . import whole
from .operators import calm, constant, is_float, number, op, rank, sizes, stop, typed

# Of log(erfc(x) / t) + x^2 as a polynomial of t = 1 / (1 + x / 2) for x >= 0, the highest power
# first, with a relative error of erfc below 1.2e-7 (Press et al., Numerical Recipes, section 6.2).
_ERFC = (
    *(0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418),
    *(0.37409196, 1.00002368, -1.26551223),
)


def _scaled_log_erfc(x: ir.Value) -> ir.Value:
    """log(erfc(x)) + x^2 for x >= 0, which is what is left of it for large x: about -log(x)."""
    t = op.Reciprocal(op.Add(op.Mul(x, 0.5), 1.0))
    total = number(_ERFC[0], x)
    for coefficient in _ERFC[1:]:
        total = op.Add(op.Mul(total, t), number(coefficient, x))
    return op.Add(total, op.Log(t))


def erfc(x: ir.Value) -> ir.Value:
    """1 - erf(x) with all its digits: above 1/2 without the difference."""
    near = op.Less(x, number(0.5, x))
    z = op.Where(near, number(0.5, x), x)
    finite = op.Clip(z, number(-math.inf, x), number(30.0, x))  # beyond, both are zero
    far = op.Exp(op.Sub(_scaled_log_erfc(finite), op.Mul(finite, finite)))
    return op.Where(near, op.Sub(1.0, op.Erf(x)), op.Where(op.IsNaN(x), x, far))


def erfcx(x: ir.Value) -> ir.Value:
    """Scaled complement of the error function: exp(x^2) times it, which falls as 1 / x."""
    if x.dtype == ir.DataType.DOUBLE:
        raise NotImplementedError(
            "special.erfcx of float64 has only the digits of float32 here; compute it in float32"
        )
    negative = op.Less(x, number(0.0, x))
    # Far on the left the other term is all there is, and infinity has no slope here.
    size = op.Neg(op.Max(x, number(-30.0, x)))
    right = op.Exp(_scaled_log_erfc(op.Where(negative, size, x)))
    left = op.Where(negative, x, number(0.0, x))
    return op.Where(negative, op.Sub(op.Mul(op.Exp(op.Mul(left, left)), 2.0), right), right)


def log_ndtr(x: ir.Value) -> ir.Value:
    """Log of the normal distribution function, (1 + erf(x / sqrt 2)) / 2; about -x^2 / 2."""
    low = op.Less(x, number(-1.0, x))
    z = op.Where(low, op.Mul(x, -math.sqrt(0.5)), number(1.0, x))
    left = op.Sub(op.Sub(_scaled_log_erfc(z), op.Mul(z, z)), math.log(2))
    right = op.Where(low, number(0.0, x), x)
    tail = op.Mul(erfc(op.Mul(right, math.sqrt(0.5))), -0.5)
    return op.Where(low, left, log1p(tail))


def ndtr(x: ir.Value) -> ir.Value:
    """erfc(-x / sqrt 2) / 2."""
    return op.Mul(erfc(typed(op.Mul(x, -math.sqrt(0.5)), x)), 0.5)


_SMALL = 0.03
"""Below it, five terms of a power series have all digits of a float32 number, ten of a float64."""


def log1p(x: ir.Value) -> ir.Value:
    """log(1 + x), with the digits of a small `x`: x - x^2/2 + x^3/3 - x^4/4 + ... there."""
    return _by_series(x, op.Log(op.Add(x, 1.0)), lambda n: -((-1) ** n) / n)


def expm1(x: ir.Value) -> ir.Value:
    """exp(x) - 1, with the digits of a small `x`: x + x^2/2! + x^3/3! + x^4/4! + ... there."""
    return _by_series(x, op.Sub(op.Exp(x), 1.0), lambda n: 1 / math.factorial(n))


def _by_series(x: ir.Value, elsewhere: ir.Value, term: Callable[[int], float]) -> ir.Value:
    """Return the sum of term(n) x^n, n = 1, 2, ..., where x is small."""
    terms = [term(n) for n in range(1, 11 if x.dtype == ir.DataType.DOUBLE else 6)]
    small = op.Less(op.Abs(x), number(_SMALL, x))
    near = op.Where(small, x, number(0.0, x))
    total = number(terms[-1], x)
    for factor in reversed(terms[:-1]):
        total = op.Add(op.Mul(total, near), number(factor, x))
    return op.Where(small, op.Mul(total, near), elsewhere)


def logaddexp(a: ir.Value, b: ir.Value) -> ir.Value:
    """log(exp(a) + exp(b)) = max(a, b) + softplus(-|a - b|)."""
    return op.Add(op.Max(a, b), op.Softplus(op.Neg(op.Abs(_difference(a, b)))))


def logaddexp2(a: ir.Value, b: ir.Value) -> ir.Value:
    """log2(2^a + 2^b) = max(a, b) + softplus(-|a - b| log 2) / log 2."""
    scaled = op.Mul(op.Abs(_difference(a, b)), -math.log(2))
    return op.Add(op.Max(a, b), op.Div(op.Softplus(scaled), math.log(2)))


def _difference(a: ir.Value, b: ir.Value) -> ir.Value:
    """A - b, and 0 where both are the same infinity."""
    return op.Where(op.Equal(a, b), number(0.0, a), op.Sub(a, b))


def logcumsumexp(x: ir.Value, dim: int) -> ir.Value:
    """Log of the running sums of exp(x): each step adds sums of twice as many elements."""
    if rank(x) == 0:
        return op.Identity(x)
    (size,), step = sizes(x, dim), 1
    while step < size:
        pads = np.zeros((2, rank(x)), np.int64)
        pads[0, dim] = step
        kept = op.Slice(x, [0], [size - step], [dim])
        shifted = op.Pad(kept, constant(pads.reshape(-1)), number(-math.inf, x))
        x = typed(logaddexp(x, typed(shifted, x)), x)
        step *= 2
    return x


def sinc(x: ir.Value) -> ir.Value:
    """sin(pi x) / (pi x), near 0 as a series, whose slope keeps its digits there."""
    angle = op.Mul(x, math.pi)
    near = op.Less(op.Abs(angle), number(0.5, x))
    square = op.Mul(*[op.Where(near, angle, number(0.0, x))] * 2)
    series = number(1.0, x)
    for k in range(8, 0, -1):
        series = op.Sub(1.0, op.Mul(op.Div(square, float(2 * k * (2 * k + 1))), series))
    far = op.Where(near, number(1.0, x), angle)
    return op.Where(near, series, op.Div(op.Sin(far), far))


def xlogy(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """X log(y), 0 where x is 0 and y a number."""
    x, y = _both(x, y)
    return _times_log(x, y, op.Log)


def xlog1py(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """X log(1 + y), 0 where x is 0 and y a number."""
    x, y = _both(x, y)
    return _times_log(x, typed(op.Add(y, 1.0), y), lambda safe: _log_near_one(safe, y))


def _log_near_one(x: ir.Value, above: ir.Value) -> ir.Value:
    """Log of x, which is 1 + `above`, with the digits lost in that sum; its slope is 1 / x."""
    small = op.Less(op.Abs(above), number(_SMALL, x))
    near = op.Log(op.Where(small, x, number(1.0, x)))
    digits = op.Add(stop(log1p(above)), op.Sub(near, stop(near)))
    return op.Where(small, digits, op.Log(x))


def _both(x: ir.Value | float, y: ir.Value | float) -> tuple[ir.Value, ir.Value]:
    if isinstance(x, ir.Value):
        return x, y if isinstance(y, ir.Value) else number(y, x)
    assert isinstance(y, ir.Value)
    return number(x, y), y


def _times_log(x: ir.Value, y: ir.Value, log: Callable[[ir.Value], ir.Value]) -> ir.Value:
    """X log(y), 0 where x is 0 and y has no log.

    The gradient of x is dy log(y), but 0 where x = 0 and y <= 0, or where dy = 0 and y is a number:
    a mask may leave out what has no log. That of y is dy x / y, also 0 / 0.
    """
    zero, far = op.Equal(x, number(0.0, x)), op.IsInf(y, detect_negative=0)
    low = op.LessOrEqual(y, number(0.0, y))
    still = op.And(zero, op.Or(low, far))
    outside = op.And(op.Less(y, number(0.0, y)), op.Not(zero))
    size = op.Where(outside, op.Neg(y), y)
    masked = calm(x)
    factor = op.Where(op.IsNaN(y), x, masked)
    inside = op.Mul(factor, log(op.Where(still, number(1.0, y), size)))
    # Infinite slopes of both signs make no number of any gradient but 0.
    endless = op.Where(outside, number(math.inf, x), number(0.0, x))
    torn = op.Add(op.Mul(masked, endless), op.Mul(calm(op.Neg(x)), endless))
    inside = op.Where(outside, op.Add(inside, torn), inside)
    # A root is as steep at 0; times 0 it has no slope there.
    one = number(1.0, x)
    steep = op.Sqrt(op.Where(op.And(zero, far), op.Sub(masked, stop(x)), one))
    origin = op.And(zero, op.Equal(y, number(0.0, y)))
    unknown = op.Mul(op.Sqrt(op.Where(origin, op.Sub(y, stop(y)), one)), number(0.0, x))
    return op.Where(origin, unknown, op.Where(op.And(zero, far), steep, inside))


def logit(x: ir.Value, eps: float | None = None) -> ir.Value:
    """log(x) - log(1 - x), of `x` between eps and 1 - eps if `eps` is given and not negative.

    The gradient is 1 / x + 1 / (1 - x), infinite at 0 and 1, and 0 where `x` is cut off. Where the
    result is no number, neither is the gradient, masked or not.
    """
    if eps is not None and eps >= 0:
        low, high = number(eps, x), number(1 - eps, x)
        x = op.Where(op.Less(x, low), low, op.Where(op.Greater(x, high), high, x))
    else:
        outside = op.Or(op.Less(x, number(0.0, x)), op.Greater(x, number(1.0, x)))
        x = typed(op.Mul(x, op.Where(outside, number(math.nan, x), number(1.0, x))), x)
    return op.Sub(op.Log(x), op.Log(op.Sub(1.0, x)))


def entr(x: ir.Value) -> ir.Value:
    """-x log(x), 0 at 0, where it is infinitely steep, and -inf for negative x, without a slope.

    At infinity the slope is -inf.
    """
    one = number(1.0, x)
    zero, far = op.Equal(x, number(0.0, x)), op.IsInf(x, detect_negative=0)
    negative = op.Less(x, number(0.0, x))
    safe = op.Where(op.Or(zero, op.Or(far, negative)), one, x)
    # A root is as steep at 0.
    edge = op.Sqrt(op.Where(zero, x, one))
    end = op.Mul(op.Where(far, x, one), -math.inf)
    # The logarithm of 0, times a slope of 0.
    outside = op.Log(op.Mul(op.Reciprocal(op.Where(negative, x, one)), 0.0))
    rest = op.Where(zero, edge, op.Where(far, end, outside))
    inside = op.Neg(op.Mul(safe, op.Log(safe)))
    return op.Where(op.Or(zero, op.Or(far, negative)), rest, inside)


def angle(x: ir.Value) -> ir.Value:
    """Pi where a real number is below 0, else 0; NaN is none."""
    turned = op.Where(op.Less(x, number(0.0, x)), number(math.pi, x), number(0.0, x))
    return op.Where(op.IsNaN(x), number(math.nan, x), turned)


def signbit(x: ir.Value) -> ir.Value:
    """Whether x is negative, -0 too, of which 1 / x tells; of a NaN it is not told."""
    zero = number(0.0, x)
    if not is_float(x):
        return op.Less(x, zero)
    return op.Or(op.Less(x, zero), op.Less(op.Reciprocal(x), zero))


def infinite(x: ir.Value, *, above: bool = True, below: bool = True) -> ir.Value:
    """Whether x is infinite; of the numbers of float64 most are beyond those of float32."""
    wide = x if x.dtype == ir.DataType.DOUBLE else op.Cast(x, to=ir.DataType.FLOAT)
    return op.IsInf(wide, detect_positive=int(above), detect_negative=int(below))


def sign(x: ir.Value) -> ir.Value:
    """-1, 0 or 1; 0 of a NaN."""
    if not is_float(x):
        result: ir.Value = aten_sign(x)
        return result
    return op.Where(op.IsNaN(x), number(0.0, x), op.Sign(x))


def heaviside(x: ir.Value, middle: ir.Value) -> ir.Value:
    """1 above 0, `middle` at 0, else 0, of a NaN too."""
    if x.dtype == ir.DataType.BOOL:
        return op.Or(x, middle)
    zero = number(0.0, x)
    step = op.Where(op.Greater(x, zero), number(1.0, x), zero)
    return op.Where(op.Equal(x, zero), middle, step)


def copysign(x: ir.Value, other: float) -> ir.Value:
    """|x| with the sign of a number."""
    size = op.Abs(x)
    return op.Neg(size) if math.copysign(1, other) < 0 else size


def atan2(y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of the point (x, y), from -pi to pi; the gradient is (-y, x) / (x^2 + y^2).

    It is atan(y / x), or pi/2 - atan(x / y) where that is steep, moved to its quadrant. Two
    infinities count as their signs; at (0, 0) the gradient is 0.
    """
    steep = op.Greater(op.Abs(y), op.Abs(x))
    short, long = op.Where(steep, x, y), op.Where(steep, y, x)
    infinite = op.And(op.IsInf(x), op.IsInf(y))
    short, long = (op.Where(infinite, op.Sign(side), side) for side in (short, long))
    origin = op.And(op.Equal(long, number(0.0, x)), op.Equal(short, number(0.0, x)))
    quotient = op.Div(
        op.Where(origin, number(0.0, x), short), op.Where(origin, number(1.0, x), long)
    )
    angle, below = op.Atan(quotient), signbit(y)
    upright = op.Where(below, number(-math.pi / 2, x), number(math.pi / 2, x))
    turn = op.Where(below, number(-math.pi, x), number(math.pi, x))
    flat = op.Where(signbit(x), op.Add(angle, turn), angle)
    return op.Where(steep, op.Sub(upright, angle), flat)


def hypot(x: ir.Value, y: ir.Value) -> ir.Value:
    """sqrt(x^2 + y^2) without squares of large numbers; infinite if one of both is.

    The gradient is (x, y) by the result, no number at (0, 0), and 0 where that is infinite.
    """
    size = op.Max(op.Abs(x), op.Abs(y))
    infinite = op.Or(op.IsInf(x), op.IsInf(y))
    flat = op.Or(infinite, op.Equal(size, number(0.0, x)))
    unit = stop(op.Where(flat, number(1.0, x), size))
    short, long = op.Div(x, unit), op.Div(y, unit)
    length = op.Mul(op.Sqrt(op.Add(op.Mul(short, short), op.Mul(long, long))), unit)
    return op.Where(infinite, number(math.inf, x), length)


def remainder(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """X - floor(x / y) y with all its digits: the remainder of truncation, plus y if of its sign.

    The sign of the result is that of `y`.
    """
    x, y = _both(x, y)
    if x.dtype is None or not x.dtype.is_floating_point():
        return whole.remainder(x, y)
    rest, zero = op.Mod(x, y, fmod=1), number(0.0, x)
    other = op.Xor(op.Less(rest, zero), op.Less(y, zero))
    misses = op.And(other, op.Not(op.Equal(rest, zero)))
    return op.Where(misses, op.Add(rest, y), rest)


def pow_scalar(x: ir.Value, exponent: float) -> ir.Value:
    """X to a power; to 1/2 and -1/2 the root, which has no number at -inf, and 1 / root."""
    if not is_float(x) and isinstance(exponent, int):
        return whole.power(x, exponent)
    if not is_float(x) or abs(exponent) != 0.5:
        result: ir.Value = aten_pow_tensor_scalar(x, exponent)
        return result
    root = op.Sqrt(x)
    return root if exponent > 0 else op.Reciprocal(root)


def floor_divide(x: ir.Value | float, y: ir.Value | float) -> ir.Value:
    """How often `y` goes into `x`, rounded down: from the remainder, as x / y may be rounded up.

    1 // 0.1 is 9. Where `y` is 0, the quotient.
    """
    x, y = _both(x, y)
    if not is_float(x):
        return whole.floored(x, y)
    zero = number(0.0, x)
    rest = op.Mod(x, y, fmod=1)
    other = op.Xor(op.Less(rest, zero), op.Less(y, zero))
    misses = op.And(other, op.Not(op.Equal(rest, zero)))
    times = op.Round(op.Div(op.Sub(x, rest), y))
    down = op.Where(misses, op.Sub(times, 1.0), times)
    return op.Where(op.Equal(y, zero), op.Floor(op.Div(x, y)), down)


def divide_mode(
    x: ir.Value | float, y: ir.Value | float, rounding_mode: str | None = None
) -> ir.Value:
    """X / y, rounded down or towards zero if `rounding_mode` is "floor" or "trunc"."""
    x, y = _both(x, y)
    if rounding_mode == "floor":
        return floor_divide(x, y)
    if rounding_mode == "trunc" and not is_float(x):
        return whole.truncated(x, y)
    result: ir.Value = aten_div_mode(x, y, rounding_mode)
    return result
