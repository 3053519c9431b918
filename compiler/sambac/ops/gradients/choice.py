"""Gradients of operators whose result is one of their inputs: it goes to the one that was taken.

y is the result of the operator, dy the gradient of y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at
from sambac.ops.family import GradientRule, InputGradient

from .rules import Point, cast, incoming, kept_where, number, operand

Gradients = Sequence[ir.Value | None]
Makers = Sequence[InputGradient | None]


def _extremum(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """dx = dy / n for each of the n inputs that equal y, else 0: Max, Min."""
    dy, y = incoming(node, gradients), node.outputs[0]
    inputs = [operand(node, index) for index in range(len(node.inputs))]

    def chosen(x: ir.Value) -> ir.Value:
        return cast(b, b.op("Equal", x, y), y)

    def gradient(x: ir.Value) -> ir.Value:
        count = chosen(inputs[0])
        for other in inputs[1:]:
            count = b.op("Add", count, chosen(other))
        return b.op("Mul", b.op("Div", dy, count), chosen(x))

    if len(inputs) == 1:
        return [lambda: dy]
    return [lambda x=x: gradient(x) for x in inputs]  # type: ignore[misc]  # bound early


def _clip(b: Editor, node: ir.Node, gradients: Gradients) -> Makers:
    """dx = dy where y = x; dlow = dy where x < low; dhigh = dy where x > high; else 0.

    If low > high, the result is high, whatever x is.
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

    makers = [lambda: where(b.op("Equal", x, y)), below, above]
    return makers[: len(node.inputs)]


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
    "Max": _extremum,
    "Min": _extremum,
    "Where": _where,
})  # fmt: skip
