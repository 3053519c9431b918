"""Gradients of operators whose result is one of their inputs: it goes to the one that was taken.

y is the result of the operator, dy the gradient of y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import frexp
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, is_open
from sambac.ops.family import GradientRule, InputGradient

from .rules import (
    Point,
    cast,
    constant_of,
    incoming,
    kept_where,
    masking_readers,
    may_be_infinite,
    number,
    operand,
    selected,
)

_STEEP = 126  # a limit times the slope of its step is below 2 ** _STEEP
_LARGEST = 2.0**100

Gradients = Sequence[ir.Value | None]
Makers = Sequence[InputGradient | None]


def _extremum(beaten: str, matched: str) -> GradientRule:
    """Return the rule of Max or Min; `beaten` and `matched` compare an input with another.

    Of two inputs each gets dy, but half of it where they are equal, and none where the other is
    taken. Beside a NaN both get dy, as in PyTorch. Of more, dx = dy / n for each of the n inputs
    that equal y, else 0.
    """

    def rule(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
        dy = incoming(node, gradients)
        inputs = [operand(node, index) for index in range(len(node.inputs))]
        if len(inputs) == 1:
            return [lambda: dy]
        if len(inputs) == 2:
            first, second = inputs
            at = Point(node, dy)
            return [lambda: share(b, at, first, second), lambda: share(b, at, second, first)]
        return [lambda x=x: _equal_share(b, node, dy, x) for x in inputs]  # type: ignore[misc]  # bound early

    def share(b: Editor, at: Point, x: ir.Value, other: ir.Value) -> ir.Value:
        below, equal = b.op(beaten, x, other), b.op(matched, x, other)
        half = b.op("Mul", b.op("Add", cast(b, below, at.dy), cast(b, equal, at.dy)), 0.5)
        dx = b.op("Mul", at.dy, b.op("Sub", 1.0, half))
        return selected(b, b.op("Not", below), dx) if may_be_infinite(at) else dx

    return rule


def _equal_share(b: Editor, node: ir.Node, dy: ir.Value, x: ir.Value) -> ir.Value:
    """Dy / n where `x` is one of the n inputs that equal the result, else 0."""
    y = node.outputs[0]
    chosen = [cast(b, b.op("Equal", operand(node, at), y), y) for at in range(len(node.inputs))]
    count = chosen[0]
    for other in chosen[1:]:
        count = b.op("Add", count, other)
    return b.op("Div", kept_where(b, b.op("Equal", x, y), Point(node, dy)), count)


def _clip(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """dx = dy where y = x; dlow = dy where x < low; dhigh = dy where x > high; else 0.

    If low > high, the result is high, whatever x is. No gradient passes at open limits.
    """
    dy, x, y = incoming(node, gradients), operand(node, 0), node.outputs[0]

    def where(mask: ir.Value) -> ir.Value:
        return kept_where(b, mask, Point(node, dy))

    def below() -> ir.Value:
        low, high = operand(node, 1), input_at(node, 2)
        outside = b.op("Less", x, low)
        return where(outside if high is None else b.op("And", outside, b.op("Less", low, high)))

    def above() -> ir.Value:
        low = input_at(node, 1)
        return where(b.op("Less", y, x if low is None else b.op("Max", x, low)))

    def inside() -> ir.Value:
        return _between(b, Point(node, dy)) if is_open(node) else where(b.op("Equal", x, y))

    return [inside, below, above][: len(node.inputs)]


def _between(b: Editor, at: Point) -> ir.Value:
    """Dy where low < x < high, else 0; as in PyTorch also where x is NaN, if that may be masked.

    In float32 two steps as steep as that of a rectifier are multiplied: onnxruntime selects element
    by element, on one thread. A power of two times a number is exact, so a step rises right behind
    its limit; each has a slope of its own, which far from it may give infinity.
    """
    low, high = (operand(at.node, index) for index in (1, 2))
    found = [constant_of(limit) for limit in (low, high)]
    limits = [float(limit.item()) for limit in found if limit is not None and limit.size == 1]
    known = len(limits) == 2
    # The result, which is kept anyway, tells as much; but not where it is rounded, to 0.699 of 0.7.
    x = at.y if known and all(map(_stays, limits)) else at.x
    told = at.y.is_graph_output() or may_be_infinite(at) or masking_readers(at.y)
    plain = at.y.dtype == ir.DataType.FLOAT and known
    if told or not plain or not all(abs(limit) < _LARGEST for limit in limits):
        outside = b.op("Or", b.op("LessOrEqual", x, low), b.op("GreaterOrEqual", x, high))
        return kept_where(b, b.op("Not", outside), at)
    rest = at.dy
    for limit, sign in zip(limits, (1.0, -1.0), strict=True):
        slope = sign * 2.0 ** (_STEEP - max(0, frexp(limit)[1]))
        step = b.op("HardSigmoid", x, alpha=slope, beta=-slope * limit)
        rest = b.op("Mul", rest, step)
    return rest


def _stays(limit: float) -> bool:
    """Tell whether a number has three binary digits, which formats of devices can all hold."""
    return (frexp(limit)[0] * 8).is_integer()


def _where(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """da = dy where the condition holds, else 0; db the other way round.

    Selected, not multiplied: models guard roots and logarithms with it.
    """
    dy, condition = incoming(node, gradients), operand(node, 0)
    zero = number(b, 0.0, dy)
    return [
        None,
        lambda: b.op("Where", condition, dy, zero),
        lambda: b.op("Where", condition, zero, dy),
    ]


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "Clip": _clip,
    "Max": _extremum("Less", "LessOrEqual"),
    "Min": _extremum("Greater", "GreaterOrEqual"),
    "Where": _where,
})  # fmt: skip
