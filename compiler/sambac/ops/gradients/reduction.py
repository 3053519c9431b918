"""Gradients of reductions and of running sums.

y is the result of the operator, dy the gradient of y; both are taken with the reduced axes kept at
size 1, so that they meet x by broadcasting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from types import MappingProxyType

import onnx_ir as ir

from sambac.errors import InternalError
from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import input_at, int_attribute
from sambac.ops.family import GradientRule, InputGradient

from .rules import (
    Point,
    cast,
    constant_of,
    incoming,
    may_be_infinite,
    number,
    operand,
    selected,
    sign,
)


@dataclass(frozen=True)
class Fold:
    """A reduction on the way back: what `Editor` appends for it."""

    b: Editor
    point: Point
    x: ir.Value
    y: ir.Value
    dy: ir.Value
    axes: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many elements are folded into one."""
        shape = shape_of(self.x)
        return prod(shape[axis] for axis in self.axes)

    def total(self, value: ir.Value) -> ir.Value:
        """Return the sums of `value`, of the shape of x, along the reduced axes."""
        return self.b.op("ReduceSum", value, self.axes, keepdims=1) if self.axes else value

    def spread(self, value: ir.Value) -> ir.Value:
        """Return `value`, of the shape of y, once for each element of x."""
        shape = shape_of(self.x)
        return value if shape_of(value) == shape else self.b.op("Expand", value, shape)


FoldFormula = Callable[[Fold], ir.Value]


def _reduction(formula: FoldFormula) -> GradientRule:
    def rule(
        b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
    ) -> Sequence[InputGradient | None]:
        dy = incoming(node, gradients)
        return [lambda: formula(_fold(b, node, dy))]

    return rule


def _axes(node: ir.Node) -> tuple[int, ...]:
    """Return the reduced axes, counted from the first.

    Where there are none, each element is folded alone: ReduceSumSquare is then its square.
    """
    rank = rank_of(operand(node, 0))
    given = input_at(node, 1)
    if given is None:
        content: list[int] = []
    else:
        known = constant_of(given)
        if known is None:
            raise InternalError(f"the axes of {node.op_type} '{node.name}' are no constant")
        content = [int(axis) for axis in known.reshape(-1)]
    if content:
        return tuple(sorted(axis % rank for axis in content))
    return () if int_attribute(node, "noop_with_empty_axes") else tuple(range(rank))


def _fold(b: Editor, node: ir.Node, dy: ir.Value) -> Fold:
    x, axes = operand(node, 0), _axes(node)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(shape_of(x)))

    def keep(value: ir.Value) -> ir.Value:
        return value if shape_of(value) == kept else b.op("Reshape", value, kept)

    return Fold(b, Point(node, dy), x, keep(node.outputs[0]), keep(dy), axes)


def _sum(at: Fold) -> ir.Value:
    """dx = dy."""
    return at.spread(at.dy)


def _mean(at: Fold) -> ir.Value:
    """dx = dy / n for the mean of n elements."""
    return at.spread(at.b.op("Mul", at.dy, 1 / max(at.count, 1)))


def _extremum(at: Fold) -> ir.Value:
    """dx = dy / n for each of the n elements that equal y, else 0: ReduceMax, ReduceMin.

    As in PyTorch, NaN where y or dy is: nothing equals it, and a product keeps it. Only an infinite
    dy must not come into one.
    """
    chosen = at.b.op("Equal", at.x, at.y)
    share = cast(at.b, chosen, at.x)
    count = at.total(share)
    if may_be_infinite(at.point):
        kept = at.b.op("Or", chosen, at.b.op("IsNaN", at.dy))
        return at.b.op("Div", selected(at.b, kept, at.dy), count)
    return at.b.op("Mul", share, at.b.op("Div", at.dy, count))


def _product(at: Fold) -> ir.Value:
    """dx = dy * the product of the other elements.

    That is p / x, where p is the product of all elements, with 1 in the place of 0 and the sign in
    the place of what is infinite, and x is changed alike. Where another element is infinite the
    result is, too; where another one is 0, it is 0.
    """
    b = at.b
    zero, infinite = b.op("Equal", at.x, 0.0), b.op("IsInf", at.x)
    finite = b.op("Where", infinite, b.op("Sign", at.x), at.x)
    safe = b.op("Where", zero, number(b, 1.0, at.x), finite)
    product = b.op("ReduceProd", safe, at.axes, keepdims=1) if at.axes else safe
    scale = b.op("Where", _another(at, infinite), number(b, inf, at.x), number(b, 1.0, at.x))
    others = b.op("Mul", b.op("Div", product, safe), scale)
    return b.op("Mul", b.op("Where", _another(at, zero), number(b, 0.0, at.x), others), at.dy)


def _another(at: Fold, mask: ir.Value) -> ir.Value:
    """Tell for each element of x whether `mask` holds for another one that is folded with it."""
    own = cast(at.b, mask, at.x)
    return at.b.op("Greater", at.total(own), own)


def _l1(at: Fold) -> ir.Value:
    """dx = dy * sign(x)."""
    return at.b.op("Mul", sign(at.b, at.x), at.dy)


def _l2(at: Fold) -> ir.Value:
    """dx = x * dy / y, 0 where y = 0."""
    b = at.b
    still = b.op("Equal", at.y, 0.0)
    scale = b.op("Where", still, number(b, 0.0, at.y), b.op("Div", at.dy, at.y))
    return b.op("Mul", at.x, scale)


def _sum_square(at: Fold) -> ir.Value:
    """dx = 2 * x * dy."""
    return at.b.op("Mul", at.x, at.b.op("Mul", at.dy, 2.0))


def _log_sum(at: Fold) -> ir.Value:
    """dx = dy * exp(-y)."""
    return at.spread(at.b.op("Mul", at.dy, at.b.op("Exp", at.b.op("Neg", at.y))))


def _log_sum_exp(at: Fold) -> ir.Value:
    """dx = dy * exp(x - y)."""
    return at.b.op("Mul", at.b.op("Exp", at.b.op("Sub", at.x, at.y)), at.dy)


def _running_sum(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = the running sum of dy in the other direction."""
    return [
        lambda: b.op(
            "CumSum",
            incoming(node, gradients),
            operand(node, 1),
            exclusive=int_attribute(node, "exclusive"),
            reverse=1 - int_attribute(node, "reverse"),
        )
    ]


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "CumSum": _running_sum,
    "ReduceL1": _reduction(_l1),
    "ReduceL2": _reduction(_l2),
    "ReduceLogSum": _reduction(_log_sum),
    "ReduceLogSumExp": _reduction(_log_sum_exp),
    "ReduceMax": _reduction(_extremum),
    "ReduceMean": _reduction(_mean),
    "ReduceMin": _reduction(_extremum),
    "ReduceProd": _reduction(_product),
    "ReduceSum": _reduction(_sum),
    "ReduceSumSquare": _reduction(_sum_square),
})  # fmt: skip
