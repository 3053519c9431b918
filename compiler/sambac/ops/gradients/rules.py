"""What gradient rules are written with: operands, constants, masks, operators of one input."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from sambac.errors import InternalError
from sambac.graph.editor import Editor
from sambac.graph.node_facts import input_at
from sambac.ops.family import GradientRule, InputGradient

_HUGE = 1e38
"""Times any normal float32 number it is above 1, and it is below the largest float32."""

_STEEP_AT_ZERO = frozenset({"Log", "Reciprocal", "ReduceL2", "ReduceLogSum", "Sqrt"})
# Operators that may hand zeros of their first input on to such a one.
_HANDS_ON_ZEROS = frozenset(
    {
        *("Abs", "Cast", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul"),
        *("Neg", "Pad", "Relu", "Reshape", "Sign", "Slice", "Split", "Squeeze", "Tile"),
        *("Transpose", "Unsqueeze"),
        *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
        *("ReduceMax", "ReduceMean", "ReduceSum"),
    }
)


@dataclass(frozen=True)
class Point:
    """An operator y = f(x) of one input on the way back, where dy is the gradient of y."""

    node: ir.Node
    dy: ir.Value

    @property
    def x(self) -> ir.Value:
        """The input."""
        return operand(self.node, 0)

    @property
    def y(self) -> ir.Value:
        """The result."""
        return self.node.outputs[0]


Formula = Callable[[Editor, Point], ir.Value]


def unary(formula: Formula) -> GradientRule:
    """Return the rule of an operator whose only differentiable input is the first."""

    def rule(
        b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
    ) -> Sequence[InputGradient | None]:
        dy = gradients[0]
        return [None if dy is None else lambda: formula(b, Point(node, dy))]

    return rule


def operand(node: ir.Node, index: int) -> ir.Value:
    """Return an input that `node` must have."""
    value = input_at(node, index)
    if value is None:
        raise InternalError(f"{node.op_type} '{node.name}' lacks input {index}")
    return value


def incoming(node: ir.Node, gradients: Sequence[ir.Value | None]) -> ir.Value:
    """Return the gradient of the first output, for operators that have only that one."""
    gradient = gradients[0]
    if gradient is None:
        raise InternalError(f"{node.op_type} '{node.name}' got no gradient")
    return gradient


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """Return the content of `value` if it is a constant of the model, else None."""
    if value is None or value.const_value is None or value.is_graph_input():
        return None
    return value.const_value.numpy()


def number(b: Editor, content: float, like: ir.Value) -> ir.Value:
    """Return a scalar constant of the type of `like`."""
    return b.constant(np.asarray(content, dtype_of(like).numpy()))


def dtype_of(value: ir.Value) -> ir.DataType:
    """Return the element type of `value`."""
    if value.dtype is None:
        raise InternalError(f"the type of '{value.name}' is unknown")
    return value.dtype


def cast(b: Editor, value: ir.Value, like: ir.Value) -> ir.Value:
    """Return `value` as numbers of the type of `like`."""
    if value.dtype == like.dtype:
        return value
    return b.op("Cast", value, to=int(dtype_of(like)))


def positive(b: Editor, x: ir.Value) -> ir.Value:
    """1 where x > 0, else 0, as numbers of the type of x.

    In float32 one operator does it, a sigmoid as steep as a step; it errs only below 1e-38.
    """
    if x.dtype == ir.DataType.FLOAT:
        return b.op("HardSigmoid", x, alpha=_HUGE, beta=0.0)
    return cast(b, b.op("Greater", x, 0.0), x)


def sign(b: Editor, x: ir.Value) -> ir.Value:
    """-1, 0 or 1 by the sign of x; in float32 without the slow Sign, wrong only below 1e-38."""
    if x.dtype == ir.DataType.FLOAT:
        return b.op("Clip", b.op("Mul", x, _HUGE), -1.0, 1.0)
    return b.op("Sign", x)


def kept_where(b: Editor, mask: ir.Value, at: Point) -> ir.Value:
    """Give dy where `mask` holds, else 0.

    A product with the mask is several times faster than a selection, but 0 times infinity is no
    number: where dy may be infinite because y = 0 goes into a root or the like, it is selected.
    """
    if steep_readers(at.y):
        return b.op("Where", mask, at.dy, number(b, 0.0, at.dy))
    return b.op("Mul", at.dy, cast(b, mask, at.dy))


def steep_readers(y: ir.Value) -> bool:
    """Tell whether an operator reads `y` whose derivative at 0 is infinite.

    It may read `y` in another shape, multiplied with something, or summed up with others.
    """
    waiting, seen = [y], {y}
    while waiting:
        for use in waiting.pop().uses():
            if _is_steep(use.node, use.idx):
                return True
            if use.node.op_type in _HANDS_ON_ZEROS:
                new = [value for value in use.node.outputs if value not in seen]
                waiting += new
                seen.update(new)
    return False


def _is_steep(node: ir.Node, index: int) -> bool:
    if node.op_type == "Div":
        return index == 1
    if node.op_type == "Pow":
        exponent = constant_of(input_at(node, 1))
        return index == 0 and (exponent is None or bool((exponent < 1).any()))
    return node.op_type in _STEEP_AT_ZERO
