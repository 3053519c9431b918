"""The logarithm of the gamma function, its derivatives, and inverse error functions.

All are computed in float64: near their zeros large terms cancel, which costs no digit of a float32
number there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import onnx_ir as ir
from numpy.polynomial import Polynomial

from .operators import number, op, typed

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
"""Bernoulli's numbers of even index, from the second on."""

_STEPS = 10
"""How far from 0 series in 1 / x have all digits, for log gamma and its first derivative."""

Function = Callable[[ir.Value], ir.Value]


def in_float64(function: Function) -> Function:
    """Return `function`, computed in float64 whatever the type of its operand is."""

    def translate(x: ir.Value) -> ir.Value:
        if x.dtype == ir.DataType.DOUBLE:
            return typed(function(x), x)
        wide = op.Cast(x, to=ir.DataType.DOUBLE)
        wide.dtype, wide.shape = ir.DataType.DOUBLE, x.shape
        return typed(op.Cast(function(wide), to=x.dtype), x)

    return translate


def log_gamma(x: ir.Value) -> ir.Value:
    """Log |gamma(x)|: Stirling's series of z = x + n, less log x, log(x + 1), ... log(z - 1).

    For x < 0 it is log(pi / |sin(pi x)|) - log gamma(1 - x).
    """
    low, size = _reflected(x)
    endless = op.IsInf(size)
    far = op.Greater(size, number(1e15, x))
    near = op.Where(far, number(1.0, x), size)
    z = op.Add(near, float(_STEPS))
    terms = [b / (2 * k * (2 * k - 1)) for k, b in enumerate(_BERNOULLI, 1)]
    rest = op.Mul(_polynomial(terms, _inverse(z, 2)), _inverse(z, 1))
    main = op.Sub(op.Mul(op.Sub(z, 0.5), op.Log(z)), z)
    series = op.Add(op.Add(main, 0.5 * math.log(2 * math.pi)), rest)
    for step in range(_STEPS):
        series = op.Sub(series, op.Log(op.Add(near, float(step))))
    large = op.Where(op.And(far, op.Not(endless)), size, number(1.0, x))
    right = op.Where(far, op.Mul(large, op.Sub(op.Log(large), 1.0)), series)
    last = op.Where(endless, size, number(1.0, x))  # its square has an infinite slope there
    right = op.Where(endless, op.Mul(last, last), right)
    sine, _, poles = _angle(x, low)
    left = op.Sub(op.Sub(math.log(math.pi), op.Log(op.Abs(sine))), right)
    return op.Where(poles, number(math.inf, x), op.Where(low, left, right))


def digamma(x: ir.Value) -> ir.Value:
    """The derivative of log gamma."""
    return _polygamma(0, x)


def polygamma(n: int, x: ir.Value) -> ir.Value:
    """The derivative of order n of digamma."""
    return in_float64(lambda wide: _polygamma(n, wide))(x)


def _polygamma(n: int, x: ir.Value) -> ir.Value:
    """psi(n, x); for x < 0 it is (-1)^n psi(n, 1 - x) - pi d^n cot(pi x) / dx^n.

    At its poles it is (-1)^(n + 1) / 0^(n + 1), which has the slope that it goes to.
    """
    low, size = _reflected(x)
    sine, cosine, poles = _angle(x, low)
    if n:  # they go to the same infinity from both sides or from the right, also where 0 has a sign
        poles = op.Or(poles, op.Equal(op.Reciprocal(x), number(-math.inf, x)))
    right = _psi(n, op.Where(poles, number(1.0, x), size))
    sine = op.Where(poles, number(1.0, x), sine)
    slope = op.Mul(_polynomial(_slope_of_cotangent(n), op.Div(cosine, sine)), math.pi ** (n + 1))
    left = op.Sub(op.Neg(right) if n % 2 else right, slope)
    finite = op.Where(op.IsInf(x), number(0.0, x), x)
    nothing = op.Where(poles, op.Sub(finite, op.Round(finite)), number(1.0, x))
    pole = _inverse(nothing, n + 1)
    pole = pole if n % 2 else op.Neg(pole)
    if n == 0:  # from its sides digamma goes to both infinities
        pole = op.Add(pole, math.nan)
    return op.Where(poles, pole, op.Where(low, left, right))


def _psi(n: int, x: ir.Value) -> ir.Value:
    """(-1)^(n + 1) n! (1 / x^(n + 1) + 1 / (x + 1)^(n + 1) + ...), from a number on by a series."""
    steps = _STEPS + 2 * n
    z = op.Add(x, float(steps))
    scale = float(math.factorial(n))
    terms = [
        b * math.factorial(2 * k + n - 1) / math.factorial(2 * k)
        for k, b in enumerate(_BERNOULLI, 1)
    ]
    total = op.Mul(_polynomial(terms, _inverse(z, 2)), _inverse(z, n + 2))
    total = op.Add(total, op.Mul(_inverse(z, n + 1), scale / 2))
    whole = op.Mul(_inverse(z, n), scale / n) if n else op.Neg(op.Log(z))
    total = op.Add(total, whole)
    for step in range(steps):
        total = op.Add(total, op.Mul(_inverse(op.Add(x, float(step)), n + 1), scale))
    return total if n % 2 else op.Neg(total)


def _reflected(x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return whether `x` is below 0, and 1 - x there, else x."""
    low = op.Less(x, number(0.0, x))
    return low, op.Where(low, op.Sub(1.0, x), x)


def _angle(x: ir.Value, low: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return sin(pi x) and cos(pi x) but for a sign of both, and where x is a pole, if `low`."""
    rest = op.Where(low, op.Sub(x, op.Round(x)), number(0.25, x))
    endless = op.IsInf(x, detect_positive=0)
    rest = op.Where(endless, number(0.0, x), rest)
    poles = op.And(low, op.Equal(rest, number(0.0, x)))
    sine = op.Sin(op.Mul(rest, math.pi))
    cosine = op.Sin(op.Mul(op.Sub(0.5, op.Abs(rest)), math.pi))
    return sine, cosine, poles


def _slope_of_cotangent(n: int) -> Sequence[float]:
    """Return the derivative of order n of cot(x) as a polynomial of it: of c it is -1 - c^2."""
    result = Polynomial([0.0, 1.0])
    for _ in range(n):
        result = result.deriv() * Polynomial([-1.0, 0.0, -1.0])
    return [float(factor) for factor in result.coef]


def _inverse(x: ir.Value, power: int) -> ir.Value:
    """1 / x^power, with slopes that are infinite at 0."""
    one = result = op.Reciprocal(x)
    for _ in range(power - 1):
        result = op.Mul(result, one)
    return result


def _polynomial(coefficients: Sequence[float], x: ir.Value) -> ir.Value:
    """Return the sum of the coefficients times x^0, x^1, ..."""
    total = number(coefficients[-1], x)
    for coefficient in reversed(coefficients[:-1]):
        total = op.Add(op.Mul(total, x), number(coefficient, x))
    return total


# Wichura's approximations of the normal distribution's quantile (algorithm AS 241), numerators and
# denominators: by 0.425^2 - q^2 where q = p - 1/2 is at most 0.425, else by r - 1.6 or, from 5 on,
# r - 5, where r = sqrt(-log p). Their relative error is 1e-16.
_NEAR = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3),
)  # fmt: skip
_MIDDLE = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9),
)  # fmt: skip
_FAR = (
    (6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7),
    (1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15),
)  # fmt: skip


def inverse_erf(x: ir.Value) -> ir.Value:
    """The number whose erf is x: infinite at -1 and 1, none beyond."""
    half = op.Mul(x, 0.5)
    tail = op.Sub(0.5, op.Abs(half))
    return op.Mul(_quantile(half, tail), math.sqrt(0.5))


def inverse_ndtr(p: ir.Value) -> ir.Value:
    """The number at which the normal distribution function is p."""
    high = op.Greater(p, number(0.5, p))
    return _quantile(op.Sub(p, 0.5), op.Where(high, op.Sub(1.0, p), p))


def _quantile(q: ir.Value, tail: ir.Value) -> ir.Value:
    """The normal quantile of q + 1/2, where `tail` is 1/2 - |q| with all its digits."""
    near = op.LessOrEqual(op.Abs(q), number(0.425, q))
    inside = op.Where(near, q, number(0.0, q))
    center = op.Mul(inside, _quotient(_NEAR, op.Sub(0.425**2, op.Mul(inside, inside))))
    edge = op.Equal(tail, number(0.0, q))
    safe = op.Where(op.Or(near, edge), number(0.05, q), tail)
    r = op.Sqrt(op.Neg(op.Log(safe)))
    middle = op.LessOrEqual(r, number(5.0, q))
    size = op.Where(middle, _quotient(_MIDDLE, op.Sub(r, 1.6)), _quotient(_FAR, op.Sub(r, 5.0)))
    size = op.Where(edge, op.Neg(op.Log(tail)), size)
    outer = op.Where(op.Less(q, number(0.0, q)), op.Neg(size), size)
    return op.Where(near, center, outer)


def _quotient(polynomials: tuple[Sequence[float], Sequence[float]], x: ir.Value) -> ir.Value:
    above, below = polynomials
    return op.Div(_polynomial(above, x), _polynomial(below, x))
