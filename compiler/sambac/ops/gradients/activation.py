"""Gradients of activation functions.

y is the result of the operator, dy the gradient of y. What is better computed from y than from x
is; every formula stays finite at large inputs, and at kinks it is PyTorch's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi, sqrt
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at
from sambac.ops.family import GradientRule, InputGradient, qualified

from .rules import (
    Point,
    cast,
    incoming,
    kept_where,
    masking_readers,
    may_be_infinite,
    number,
    operand,
    positive,
    selected,
    unary,
)

_SWALLOWING = 2.0**8
"""From which size on `low + (1 - low)` may be other than 1 in some type of numbers."""
_SELU_ALPHA = 1.67326319217681884765625
_SELU_GAMMA = 1.05070102214813232421875
# Gelu by tanh is x * sigmoid(2 * K * (x + A * x^3)).
_K = sqrt(2 / pi)
_A = 0.044715


def _relu(b: Editor, at: Point) -> ir.Value:
    """dx = dy where y > 0, else 0; as in PyTorch also where y is NaN, if that may be masked."""
    if may_be_infinite(at) or masking_readers(at.y):
        return kept_where(b, b.op("Not", b.op("LessOrEqual", at.y, 0.0)), at)
    return b.op("Mul", at.dy, positive(b, at.y))


def _leaky_relu(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (1 where x > 0, else alpha)."""
    alpha = float_attribute(at.node, "alpha", 0.01)
    if not alpha:
        return kept_where(b, b.op("Greater", at.x, 0.0), at)
    return b.op("Mul", at.dy, _step(b, at.node, alpha))


def _step(b: Editor, node: ir.Node, low: ir.Value | float) -> ir.Value:
    """1 where x > 0, else `low`: max(x > 0, low), or low + (x > 0) * (1 - low).

    A large `low` would lose the 1 in this sum: there it is chosen.
    """
    if isinstance(low, float) and abs(low) >= _SWALLOWING:
        x = operand(node, 0)
        return b.op("Where", b.op("Greater", x, 0.0), number(b, 1.0, x), number(b, low, x))
    rise = b.op("Sub", 1.0, low) if isinstance(low, ir.Value) else 1.0 - low
    above = positive(b, operand(node, 0), masked=masking_readers(node.outputs[0]))
    if isinstance(low, float) and 0 <= low <= 1:
        return b.op("Clip", above, low, 1.0)
    return b.op("Add", b.op("Mul", above, rise), low)


def _prelu(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = dy * (1 where x > 0, else slope); dslope = dy * min(x, 0)."""
    x, slope = operand(node, 0), operand(node, 1)
    dy = incoming(node, gradients)

    def to_slope() -> ir.Value:
        product = b.op("Mul", dy, b.op("Min", x, 0.0))
        if not may_be_infinite(Point(node, dy)):
            return product
        return selected(b, b.op("Not", b.op("Greater", x, 0.0)), product)

    return [lambda: b.op("Mul", dy, _step(b, node, slope)), to_slope]


def _thresholded_relu(b: Editor, at: Point) -> ir.Value:
    """dx = dy where x > alpha, else 0."""
    alpha = float_attribute(at.node, "alpha", 1.0)
    return kept_where(b, b.op("Greater", at.x, alpha), at)


def _shrink(b: Editor, at: Point) -> ir.Value:
    """dx = dy where |x| > lambda, else 0."""
    bound = float_attribute(at.node, "lambd", 0.5)
    return kept_where(b, b.op("Greater", b.op("Abs", at.x), bound), at)


def _elu(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (1 where x > 0, else alpha * exp(x))."""
    return _exponential(b, at, float_attribute(at.node, "alpha", 1.0))


def _selu(b: Editor, at: Point) -> ir.Value:
    """dx = dy * gamma * (1 where x > 0, else alpha * exp(x))."""
    gamma = float_attribute(at.node, "gamma", _SELU_GAMMA)
    alpha = float_attribute(at.node, "alpha", _SELU_ALPHA)
    return b.op("Mul", _exponential(b, at, alpha), gamma)


def _exponential(b: Editor, at: Point, alpha: float) -> ir.Value:
    """dy * (alpha * exp(min(x, 0)) + (1 - alpha) * (x > 0)), with no exponential of a large x.

    A large `alpha` would lose the 1 in this sum: there it is chosen.
    """
    slope = b.op("Exp", b.op("Min", at.x, 0.0))
    if abs(alpha) >= _SWALLOWING:
        above = b.op("Greater", at.x, 0.0)
        slope = b.op("Where", above, number(b, 1.0, at.x), b.op("Mul", slope, alpha))
    elif alpha != 1:
        rise = b.op("Mul", positive(b, at.x), 1 - alpha)
        slope = b.op("Add", b.op("Mul", slope, alpha), rise)
    return b.op("Mul", at.dy, slope)


def _celu(b: Editor, at: Point) -> ir.Value:
    """dx = dy * exp(min(x, 0) / alpha)."""
    alpha = float_attribute(at.node, "alpha", 1.0)
    return b.op("Mul", at.dy, b.op("Exp", b.op("Mul", b.op("Min", at.x, 0.0), 1 / alpha)))


def _sigmoid(b: Editor, at: Point) -> ir.Value:
    """dx = dy * y * (1 - y)."""
    return b.op("Mul", b.op("Mul", at.dy, at.y), b.op("Sub", 1.0, at.y))


def _tanh(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (1 - y^2)."""
    return b.op("Mul", at.dy, b.op("Sub", 1.0, b.op("Mul", at.y, at.y)))


def _hard_sigmoid(b: Editor, at: Point) -> ir.Value:
    """dx = alpha * dy where 0 < alpha * x + beta < 1, else 0."""
    alpha = float_attribute(at.node, "alpha", 0.2)
    beta = float_attribute(at.node, "beta", 0.5)
    if not alpha:
        return b.op("Mul", at.dy, 0.0)
    inside = _between(b, at.x, *sorted((-beta / alpha, (1 - beta) / alpha)))
    return b.op("Mul", kept_where(b, inside, at), alpha)


def _hard_swish(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (h + x / 6 * (-3 < x < 3)), h = clip(x / 6 + 1 / 2, 0, 1); x is finite there."""
    h = b.op("HardSigmoid", at.x, alpha=1 / 6, beta=0.5)
    slope = b.op("Mul", b.op("Clip", at.x, -3.0, 3.0), 1 / 6)
    rise = b.op("Mul", slope, cast(b, _between(b, at.x, -3.0, 3.0), at.x))
    dx = b.op("Mul", at.dy, b.op("Add", h, rise))
    if not may_be_infinite(at):
        return dx
    return selected(b, b.op("Not", b.op("LessOrEqual", at.x, -3.0)), dx)


def _between(b: Editor, x: ir.Value, low: float, high: float) -> ir.Value:
    """low < x < high: what is computed of x is rounded, and may be at a limit before x is."""
    return b.op("And", b.op("Greater", x, low), b.op("Less", x, high))


def _softplus(b: Editor, at: Point) -> ir.Value:
    """dx = dy * sigmoid(x)."""
    return b.op("Mul", at.dy, b.op("Sigmoid", at.x))


def _softsign(b: Editor, at: Point) -> ir.Value:
    """dx = dy / (1 + |x|)^2."""
    size = b.op("Add", b.op("Abs", at.x), 1.0)
    return b.op("Div", at.dy, b.op("Mul", size, size))


def _mish(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (s (1 + r) + 4 s x r^2 / q) / q, s = sigmoid(x), r = sigmoid(-x), q = 1 + r^2.

    From tanh(softplus(x)) = (1 - r^2) / (1 + r^2) and 1 - r = s; no term grows with exp(x), nor
    with x, which s or r is 0 for.
    """
    s, r = b.op("Sigmoid", at.x), b.op("Sigmoid", b.op("Neg", at.x))
    square = b.op("Mul", r, r)
    q = b.op("Add", square, 1.0)
    bend = b.op("Mul", b.op("Div", b.op("Mul", b.op("Mul", s, at.x), square), q), 4.0)
    slope = b.op("Div", b.op("Add", b.op("Mul", s, b.op("Add", r, 1.0)), bend), q)
    return b.op("Mul", at.dy, slope)


def _gelu(b: Editor, at: Point) -> ir.Value:
    """dx by the error function, or by tanh where the attribute `approximate` says so."""
    approximate = at.node.attributes.get("approximate")
    if approximate is not None and approximate.as_string() == "tanh":
        return _by_tanh(b, at.x, at.dy)
    return _by_erf(b, at.x, at.dy)


def _by_erf(b: Editor, x: ir.Value, dy: ir.Value) -> ir.Value:
    """dx = dy * (p + x * exp(-x^2 / 2) / sqrt(2 pi)), p = (1 + erf(x / sqrt(2))) / 2."""
    bell = b.op("Exp", b.op("Mul", b.op("Mul", x, x), -0.5))
    bend = b.op("Mul", b.op("Mul", x, bell), _K / 2)
    return b.op("Mul", dy, b.op("Add", _probability(b, x), bend))


def _probability(b: Editor, x: ir.Value) -> ir.Value:
    """(1 + erf(x / sqrt(2))) / 2, in one operator after the error function."""
    area = b.op("Erf", b.op("Mul", x, sqrt(0.5)))
    return b.op("HardSigmoid", area, alpha=0.5, beta=0.5)


def _by_tanh(b: Editor, x: ir.Value, dy: ir.Value) -> ir.Value:
    """dx = dy (s + x s (1 - s) 2 K (1 + 3 A x^2)), s = sigmoid(v), v = 2 K x (1 + A x^2).

    Where v is infinite s (1 - s) is 0, and what it multiplies finite, up to roots of the largest x.
    """
    square = b.op("Mul", x, x)
    v = b.op("Mul", x, b.op("Add", b.op("Mul", square, 2 * _K * _A), 2 * _K))
    s = b.op("Sigmoid", v)
    rise = b.op("Mul", b.op("Mul", s, b.op("Sub", 1.0, s)), x)
    steep = b.op("Add", b.op("Mul", square, 6 * _K * _A), 2 * _K)
    return b.op("Mul", dy, b.op("Add", s, b.op("Mul", rise, steep)))


def _quick_gelu(b: Editor, at: Point) -> ir.Value:
    """dx = dy * s * (1 + alpha * (x - y)), s = sigmoid(alpha * x)."""
    alpha = float_attribute(at.node, "alpha", 1.702)
    s = b.op("Sigmoid", b.op("Mul", at.x, alpha))
    bend = b.op("Add", b.op("Mul", b.op("Sub", at.x, at.y), alpha), 1.0)
    return b.op("Mul", b.op("Mul", at.dy, s), bend)


def _bias_gelu(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = dbias = dy * gelu'(x + bias), by the error function."""
    return [lambda: _by_erf(b, _shifted(b, node), incoming(node, gradients))] * 2


def _fast_gelu(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = dbias = dy * gelu'(x + bias), by tanh; the bias may be absent."""

    def make() -> ir.Value:
        return _by_tanh(b, _shifted(b, node), incoming(node, gradients))

    return [make] * len(node.inputs)


def _shifted(b: Editor, node: ir.Node) -> ir.Value:
    bias = input_at(node, 1)
    return operand(node, 0) if bias is None else b.op("Add", operand(node, 0), bias)


_MICROSOFT = "com.microsoft"

GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "Celu": unary(_celu),
    "Elu": unary(_elu),
    "Gelu": unary(_gelu),
    "HardSigmoid": unary(_hard_sigmoid),
    "HardSwish": unary(_hard_swish),
    "LeakyRelu": unary(_leaky_relu),
    "Mish": unary(_mish),
    "PRelu": _prelu,
    "Relu": unary(_relu),
    "Selu": unary(_selu),
    "Shrink": unary(_shrink),
    "Sigmoid": unary(_sigmoid),
    "Softplus": unary(_softplus),
    "Softsign": unary(_softsign),
    "Tanh": unary(_tanh),
    "ThresholdedRelu": unary(_thresholded_relu),
    qualified(_MICROSOFT, "BiasGelu"): _bias_gelu,
    qualified(_MICROSOFT, "FastGelu"): _fast_gelu,
    qualified(_MICROSOFT, "Gelu"): unary(_gelu),
    qualified(_MICROSOFT, "QuickGelu"): unary(_quick_gelu),
})  # fmt: skip
