"""Gradients of arithmetic and of elementary functions.

y is the result of the operator, dy the gradient of y. Gradients of broadcast inputs have the shape
of the output here; whoever asks sums them down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import pi, sqrt
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.ops.family import GradientRule, InputGradient, qualified

from .rules import (
    Formula,
    Point,
    cast,
    constant_of,
    incoming,
    number,
    operand,
    sign,
    unary,
)

Gradients = Sequence[ir.Value | None]
Makers = Sequence[InputGradient | None]


def _abs(b: Editor, at: Point) -> ir.Value:
    """dx = dy * sign(x), which is 0 of what is no number: a mask behind it may leave that out."""
    slope = b.op("Where", b.op("IsNaN", at.x), number(b, 0.0, at.x), sign(b, at.x))
    return b.op("Mul", at.dy, slope)


def _neg(b: Editor, at: Point) -> ir.Value:
    """dx = -dy."""
    return b.op("Neg", at.dy)


def _reciprocal(b: Editor, at: Point) -> ir.Value:
    """dx = -dy * y^2."""
    return b.op("Neg", b.op("Mul", at.dy, b.op("Mul", at.y, at.y)))


def _sqrt(b: Editor, at: Point) -> ir.Value:
    """dx = dy / (2 y)."""
    return b.op("Div", b.op("Mul", at.dy, 0.5), at.y)


def _exp(b: Editor, at: Point) -> ir.Value:
    """dx = dy * y."""
    return b.op("Mul", at.dy, at.y)


def _log(b: Editor, at: Point) -> ir.Value:
    """dx = dy / x."""
    return b.op("Div", at.dy, at.x)


def _erf(b: Editor, at: Point) -> ir.Value:
    """dx = dy * 2 / sqrt(pi) * exp(-x^2)."""
    bell = b.op("Exp", b.op("Neg", b.op("Mul", at.x, at.x)))
    return b.op("Mul", at.dy, b.op("Mul", bell, 2 / sqrt(pi)))


def _times(function: str) -> Formula:
    """dx = dy * function(x)."""
    return lambda b, at: b.op("Mul", at.dy, b.op(function, at.x))


def _cos(b: Editor, at: Point) -> ir.Value:
    """dx = -dy * sin(x)."""
    return b.op("Neg", b.op("Mul", at.dy, b.op("Sin", at.x)))


def _tan(b: Editor, at: Point) -> ir.Value:
    """dx = dy * (1 + y^2)."""
    return b.op("Mul", at.dy, b.op("Add", b.op("Mul", at.y, at.y), 1.0))


def _atan(b: Editor, at: Point) -> ir.Value:
    """dx = dy / (1 + x^2)."""
    return b.op("Div", at.dy, b.op("Add", b.op("Mul", at.x, at.x), 1.0))


def _atanh(b: Editor, at: Point) -> ir.Value:
    """dx = dy / (1 - x^2)."""
    return b.op("Div", at.dy, b.op("Sub", 1.0, b.op("Mul", at.x, at.x)))


def _asin(b: Editor, at: Point) -> ir.Value:
    """dx = dy / sqrt(1 - x^2)."""
    return b.op("Div", at.dy, b.op("Sqrt", b.op("Sub", 1.0, b.op("Mul", at.x, at.x))))


def _acos(b: Editor, at: Point) -> ir.Value:
    """dx = -dy / sqrt(1 - x^2)."""
    return b.op("Neg", _asin(b, at))


def _asinh(b: Editor, at: Point) -> ir.Value:
    """dx = dy / sqrt(x^2 + 1)."""
    return b.op("Div", at.dy, b.op("Sqrt", b.op("Add", b.op("Mul", at.x, at.x), 1.0)))


def _acosh(b: Editor, at: Point) -> ir.Value:
    """dx = dy / sqrt(x^2 - 1)."""
    return b.op("Div", at.dy, b.op("Sqrt", b.op("Sub", b.op("Mul", at.x, at.x), 1.0)))


def _cast(b: Editor, at: Point) -> ir.Value:
    """dx = dy, in the type of x."""
    return cast(b, at.dy, at.x)


def _add(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """dx = dy for every input: Add, Sum."""
    dy = incoming(node, gradients)
    return [lambda: dy] * len(node.inputs)


def _sub(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy, db = -dy."""
    dy = incoming(node, gradients)
    return [lambda: dy, lambda: b.op("Neg", dy)]


def _mean(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """dx = dy / n for each of n inputs."""
    dy, count = incoming(node, gradients), len(node.inputs)
    return [lambda: b.op("Mul", dy, 1 / count)] * count


def _mul(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy * b, db = dy * a.

    A selection may read x * 0, as PyTorch spells what is 0 unless x is NaN: no gradient passes.
    """
    dy, left, right = incoming(node, gradients), operand(node, 0), operand(node, 1)
    readers = {use.node.op_type for use in node.outputs[0].uses()}
    chosen = readers == {"Where"} and not node.outputs[0].is_graph_output()

    def times(factor: ir.Value) -> ir.Value:
        content = constant_of(factor) if chosen else None
        nothing = content is not None and content.size == 1 and not content.any()
        return b.zeros(dy) if nothing else b.op("Mul", dy, factor)

    return [lambda: times(right), lambda: times(left)]


def _div(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy / b, db = -dy / b * y."""
    dy, divisor, y = incoming(node, gradients), operand(node, 1), node.outputs[0]
    return [
        lambda: b.op("Div", dy, divisor),
        lambda: b.op("Neg", b.op("Mul", b.op("Div", dy, divisor), y)),
    ]


def _mod(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy, db = -dy * (a - y) / b, whose quotient is an integer."""
    dy, dividend, divisor = incoming(node, gradients), operand(node, 0), operand(node, 1)

    def by_divisor() -> ir.Value:
        quotient = b.op("Div", b.op("Sub", dividend, node.outputs[0]), divisor)
        return b.op("Neg", b.op("Mul", dy, b.op("Round", quotient)))

    return [lambda: dy, by_divisor]


def _pow(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy * p * a^(p-1), 0 where p = 0; dp = dy * y * log(a), 0 where a = 0 and p >= 0."""
    dy, y = incoming(node, gradients), node.outputs[0]
    base, exponent = operand(node, 0), operand(node, 1)

    def by_exponent() -> ir.Value:
        slope = b.op("Mul", y, b.op("Log", base))
        still = b.op("And", b.op("Equal", base, 0.0), b.op("GreaterOrEqual", exponent, 0.0))
        slope = b.op("Where", still, number(b, 0.0, base), slope)
        return cast(b, b.op("Mul", dy, slope), exponent)

    return [lambda: _power_slope(b, Point(node, dy), exponent), by_exponent]


def _power_slope(b: Editor, at: Point, exponent: ir.Value) -> ir.Value:
    """dy * p * x^(p-1), without the slow Pow for the exponents that models use."""
    content = constant_of(exponent)
    if content is None or content.size != 1:
        return _general_slope(b, at, cast(b, exponent, at.x))
    p = float(content.item())
    if p == 0:
        return b.zeros(at.dy)
    if p == 1:
        return at.dy
    short = _SHORT_POWERS.get(p)
    power = short(b, at) if short else b.op("Pow", at.x, number(b, p - 1, at.x))
    return b.op("Mul", at.dy, b.op("Mul", power, p))


# x^(p-1), by p.
_SHORT_POWERS: Mapping[float, Formula] = MappingProxyType({
    -1.0: lambda b, at: b.op("Mul", at.y, at.y),
    -0.5: lambda b, at: b.op("Mul", b.op("Mul", at.y, at.y), at.y),
    0.5: lambda b, at: b.op("Reciprocal", at.y),
    1.5: lambda b, at: b.op("Sqrt", at.x),
    2.0: lambda b, at: at.x,
    3.0: lambda b, at: b.op("Mul", at.x, at.x),
})  # fmt: skip


def _general_slope(b: Editor, at: Point, exponent: ir.Value) -> ir.Value:
    power = b.op("Pow", at.x, b.op("Sub", exponent, 1.0))
    still = b.op("Equal", exponent, 0.0)
    slope = b.op("Where", still, number(b, 0.0, at.x), b.op("Mul", power, exponent))
    return b.op("Mul", at.dy, slope)


def _gated_add(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """y = a + b * gate: da = dy, db = dy * gate, dgate = dy * b."""
    dy, branch, gate = incoming(node, gradients), operand(node, 1), operand(node, 2)
    return [lambda: dy, lambda: b.op("Mul", dy, gate), lambda: b.op("Mul", dy, branch)]


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "Abs": unary(_abs),
    "Acos": unary(_acos),
    "Acosh": unary(_acosh),
    "Add": _add,
    "Asin": unary(_asin),
    "Asinh": unary(_asinh),
    "Atan": unary(_atan),
    "Atanh": unary(_atanh),
    "Cast": unary(_cast),
    "CastLike": unary(_cast),
    "Cos": unary(_cos),
    "Cosh": unary(_times("Sinh")),
    "Div": _div,
    "Erf": unary(_erf),
    "Exp": unary(_exp),
    "Log": unary(_log),
    "Mean": _mean,
    "Mod": _mod,
    "Mul": _mul,
    "Neg": unary(_neg),
    "Pow": _pow,
    "Reciprocal": unary(_reciprocal),
    "Sin": unary(_times("Cos")),
    "Sinh": unary(_times("Cosh")),
    "Sqrt": unary(_sqrt),
    "Sub": _sub,
    "Sum": _add,
    "Tan": unary(_tan),
    qualified("com.microsoft", "GatedAdd"): _gated_add,
})  # fmt: skip
