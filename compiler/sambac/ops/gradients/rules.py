"""What gradient rules are written with: operands, constants, masks, shapes, sums.

Functions that give another shape to a value append no node where it has that shape.

Sums and products over whole axes are in the forms that run fastest: rows are summed by ReduceSum
along the last axis, columns by a product with a row of ones, as a reduction over a leading axis
takes two to six times as long.

The gradient of any operator that only moves elements lets it move their positions (`replayed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.errors import InternalError
from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import input_at
from sambac.ops.family import GradientRule, InputGradient

_HUGE = 1e38
"""Times any normal float32 number it is above 1, and it is below the largest float32."""

_HUGE_FACTOR = 1e9
"""From which size on a constant factor may make gradients infinite, together with others."""

# The derivatives of these have poles. Those of Div, Mul and Pow depend on an operand (`_is_steep`).
_STEEP = frozenset(
    {
        *("Acos", "Acosh", "Asin", "Atanh", "Log", "Reciprocal", "ReduceL2", "ReduceLogSum"),
        "Sqrt",
    }
)
# Operators through which an infinite gradient may come back, element by element.
_HANDS_ON = frozenset(
    {
        *("Abs", "Add", "Cast", "Clip", "Concat", "Div", "Elu", "Exp", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "HardSigmoid", "HardSwish", "Identity"),
        *("LeakyRelu", "Max", "Mean", "Min", "Mul", "Neg", "Pad", "Pow", "PRelu", "Relu"),
        *("Reshape", "Sigmoid", "Sign", "Slice", "Softplus", "Split", "Squeeze", "Sub", "Sum"),
        *("Tanh", "Tile", "Transpose", "Unsqueeze", "Where"),
        *("Col2Im", "CumSum", "DepthToSpace", "MaxUnpool", "Resize", "ScatterElements"),
        *("ScatterND", "SpaceToDepth", "TopK", "Trilu"),
        *("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
        *("ReduceL1", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"),
        *("LogSoftmax", "ReduceLogSumExp", "ReduceProd", "Softmax"),
    }
)
# These hand on what comes back for a factor where the others are constants. The gradient of a
# weight beside it would be no number either.
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
# Elementwise, so that a NaN stays where it is.
_HANDS_ON_NAN = frozenset(
    {
        *("Abs", "Add", "Cast", "Concat", "Div", "Expand", "Identity", "Mul", "Neg", "Relu"),
        *("LeakyRelu", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
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


def positive(b: Editor, x: ir.Value, *, masked: bool = False) -> ir.Value:
    """1 where x > 0, else 0, as numbers of the type of x.

    In float32 one operator does it, a sigmoid as steep as a step; it errs only below 1e-38, and is
    NaN where x is. Where that may be `masked` (`masking_readers`), comparing takes half as long
    again, but a NaN times a gradient of 0 is kept from what trains.
    """
    if x.dtype == ir.DataType.FLOAT and not masked:
        return b.op("HardSigmoid", x, alpha=_HUGE, beta=0.0)
    return cast(b, b.op("Greater", x, 0.0), x)


def sign(b: Editor, x: ir.Value) -> ir.Value:
    """-1, 0 or 1 by the sign of x; in float32 without the slow Sign, wrong only below 1e-38."""
    if x.dtype == ir.DataType.FLOAT:
        return b.op("Clip", b.op("Mul", x, _HUGE), -1.0, 1.0)
    return b.op("Sign", x)


def kept_where(b: Editor, mask: ir.Value, at: Point) -> ir.Value:
    """Give dy where `mask` holds, else 0.

    A product with the mask takes half to two thirds of the time of a selection, but 0 times
    infinity is no number: where dy may be infinite (`may_be_infinite`), it is selected.
    """
    if may_be_infinite(at):
        return selected(b, mask, at.dy)
    return b.op("Mul", at.dy, cast(b, mask, at.dy))


def selected(b: Editor, mask: ir.Value, dy: ir.Value) -> ir.Value:
    """Give `dy` where `mask` holds, else 0, whatever `dy` is."""
    return b.op("Where", mask, dy, number(b, 0.0, dy))


def may_be_infinite(at: Point) -> bool:
    """Tell whether dy may be infinite where the gradient of a finite x is 0.

    It may if it comes from outside, or through an operator whose derivative has a pole.
    """
    return at.dy.is_graph_input() or steep_readers(at.y)


def steep_readers(y: ir.Value) -> bool:
    """Tell whether an operator reads `y` whose derivative has a pole, or is huge.

    It may read what other operators make of `y`: a limit of a rectifier is at a pole of
    `acos(1 - y)`, of `log(y + z)`, or of the logarithm of 6 - y.
    """
    return _reaches(y, _is_steep, _HANDS_ON)


def masking_readers(y: ir.Value) -> bool:
    """Tell whether a selection reads `y`, or what is computed of it: it may leave out a NaN."""
    return _reaches(y, lambda node, _: node.op_type == "Where", _HANDS_ON_NAN)


def _reaches(y: ir.Value, wanted: Callable[[ir.Node, int], bool], through: frozenset[str]) -> bool:
    """Tell whether a wanted operator reads `y`, by way of others of the types `through`."""
    waiting, seen = [y], {y}
    while waiting:
        for use in waiting.pop().uses():
            if wanted(use.node, use.idx):
                return True
            if use.node.op_type in through or _is_of_constants(use.node, use.idx):
                new = [value for value in use.node.outputs if value not in seen]
                waiting += new
                seen.update(new)
    return False


def _is_of_constants(node: ir.Node, index: int) -> bool:
    """Tell whether `node` is a product of its input `index` with constants."""
    if node.op_type not in _PRODUCTS:
        return False
    factors = node.inputs if node.op_type == "Einsum" else node.inputs[:2]
    return all(constant_of(each) is not None for at, each in enumerate(factors) if at != index)


def _is_steep(node: ir.Node, index: int) -> bool:
    if node.op_type == "Div" and index == 1:
        return True
    if node.op_type in {"Div", "Mul"}:
        factor = constant_of(input_at(node, 1 - index))
        return factor is not None and _is_huge(factor, divides=node.op_type == "Div")
    if node.op_type == "Pow":
        exponent = constant_of(input_at(node, 1))
        return index == 0 and (exponent is None or bool((exponent < 1).any()))
    return node.op_type in _STEEP


def _is_huge(factor: np.ndarray, *, divides: bool) -> bool:
    size = np.abs(factor.astype(np.float64))
    return bool((size < 1 / _HUGE_FACTOR if divides else size > _HUGE_FACTOR).any())


def reshape(b: Editor, x: ir.Value, shape: Sequence[int]) -> ir.Value:
    """Return `x` with another static shape of as many elements."""
    shape = tuple(shape)
    if shape_of(x) == shape:
        return x
    return b.op("Reshape", x, shape)


def flatten(b: Editor, x: ir.Value, axis: int) -> ir.Value:
    """Return `x` as a matrix, the axes before `axis` in its rows; a negative axis counts back."""
    shape = shape_of(x)
    axis = axis % (len(shape) + 1) if axis >= 0 else axis + len(shape)
    return reshape(b, x, (prod(shape[:axis]), prod(shape[axis:])))


def transpose(b: Editor, x: ir.Value, order: Sequence[int]) -> ir.Value:
    """Return `x` with its axes in another order."""
    return x if list(order) == sorted(order) else b.op("Transpose", x, perm=list(order))


def swap_last(b: Editor, x: ir.Value) -> ir.Value:
    """Return the transposed matrices of `x`, of rank 2 or more."""
    rank = rank_of(x)
    return transpose(b, x, [*range(rank - 2), rank - 1, rank - 2])


def cut(b: Editor, x: ir.Value, spans: Mapping[int, tuple[int, int]]) -> ir.Value:
    """Return the part of `x` from `start` up to `stop` along each axis in `spans`."""
    shape = shape_of(x)
    real = {axis: span for axis, span in spans.items() if span != (0, shape[axis])}
    if not real:
        return x
    starts, stops = zip(*real.values(), strict=True)
    return b.op("Slice", x, starts, stops, list(real))


def surround(b: Editor, x: ir.Value, margins: Mapping[int, tuple[int, int]]) -> ir.Value:
    """Return `x` with `before` and `after` zeros added along each axis in `margins`.

    All axes are listed: onnxruntime moves transposes across a Pad as if it had no `axes`.
    """
    every = [margins.get(axis, (0, 0)) for axis in range(len(shape_of(x)))]
    if not any(map(any, every)):
        return x
    return b.op("Pad", x, [before for before, _ in every] + [after for _, after in every])


def reverse(b: Editor, x: ir.Value, axis: int, span: tuple[int, int]) -> ir.Value:
    """Return the part of `x` from `start` up to `stop` along `axis`, last element first."""
    start, stop = span
    if stop - start < 2:
        return cut(b, x, {axis: span})
    end = start - 1 if start else -(2**31)
    return b.op("Slice", x, [stop - 1], [end], [axis], [-1])


def spread(b: Editor, x: ir.Value, axis: int, step: int) -> ir.Value:
    """Return `x` with `step` - 1 zeros between neighbours along `axis`."""
    before, count, after = shape_of(x)[:axis], shape_of(x)[axis], shape_of(x)[axis + 1 :]
    if step == 1 or count < 2:
        return x
    apart = surround(b, reshape(b, x, (*before, count, 1, *after)), {axis + 1: (0, step - 1)})
    row = reshape(b, apart, (*before, count * step, *after))
    return cut(b, row, {axis: (0, (count - 1) * step + 1)})


def zeros(b: Editor, dtype: ir.DataType | None, shape: Sequence[int]) -> ir.Value:
    """Return zeros of a type and shape."""
    assert dtype is not None
    return b.op("ConstantOfShape", shape, value=ir.tensor(np.zeros(1, dtype.numpy())))


def constant_integers(node: ir.Node, index: int) -> tuple[int, ...] | None:
    """Return the elements of a constant input of `node`, None if it is absent or no constant."""
    content = constant_of(input_at(node, index))
    return None if content is None else tuple(int(item) for item in content.reshape(-1))


def integers_attribute(node: ir.Node, name: str) -> tuple[int, ...] | None:
    """Return an attribute that is a list of integers, None if it is absent."""
    attribute = node.attributes.get(name)
    return None if attribute is None else tuple(attribute.as_ints())


def first(node: ir.Node) -> ir.Value:
    """Return the first input of `node`, which every operator with a gradient has."""
    value = node.inputs[0]
    assert value is not None
    return value


def column_sums(b: Editor, rows: ir.Value) -> ir.Value:
    """Return [D] from `rows` [N, D]: the sum of each column."""
    count, width = shape_of(rows)
    ones = np.ones((1, count), rows.dtype.numpy())  # type: ignore[union-attr]  # typed graph
    return b.op("Reshape", b.op("MatMul", ones, rows), [width])


def channel_sums(b: Editor, image: ir.Value) -> ir.Value:
    """Return [C] from `image` [N, C, *]: the sum over everything but the channel."""
    batch, channels, *sizes = shape_of(image)
    if not sizes:
        return column_sums(b, image)
    flat = b.op("Reshape", image, [batch * channels, prod(sizes)])
    sums = b.op("ReduceSum", flat, [1], keepdims=0)
    return column_sums(b, b.op("Reshape", sums, [batch, channels]))


def apply_along(b: Editor, value: ir.Value, axis: int, matrix: np.ndarray) -> ir.Value:
    """Return M v for every vector v of `value` along `axis`; M [m, n] is constant, n the size.

    An identity costs nothing; the last axis is multiplied from the right, any other from the left.
    """
    if _is_identity(matrix):
        return value
    shape = shape_of(value)
    axis %= len(shape)
    factor = matrix.astype(value.dtype.numpy())  # type: ignore[union-attr]  # typed graph
    result = [*shape[:axis], len(matrix), *shape[axis + 1 :]]
    if axis == len(shape) - 1:
        return b.op("MatMul", value, np.ascontiguousarray(factor.T))
    if axis == len(shape) - 2:
        return b.op("MatMul", b.constant(factor), value)
    merged = [prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])]
    product = b.op("MatMul", b.constant(factor), b.op("Reshape", value, merged))
    return b.op("Reshape", product, result)


def _is_identity(matrix: np.ndarray) -> bool:
    rows, columns = matrix.shape
    return rows == columns and bool((matrix == np.eye(rows)).all())


def replayed(b: Editor, at: Point, parameters: tuple[ir.Value | None, ...] = ()) -> ir.Value:
    """Return dx for the operator `at`, a move of its first input.

    `parameters` are its other inputs, by default those of the node. A move that creates elements
    must give them the position behind the last; what they would add is dropped.
    """
    shape = shape_of(at.x)
    count = prod(shape)
    positions = b.op("Range", np.array(0), np.array(count), np.array(1))
    moved = b.op(
        at.node.op_type,
        reshape(b, positions, shape),
        *(parameters or at.node.inputs[1:]),
        **{name: attribute.value for name, attribute in at.node.attributes.items()},
    )
    flat = [b.op("Reshape", value, [-1]) for value in (moved, at.dy)]
    table = zeros(b, at.dy.dtype, (count + 1,))
    summed = b.op("ScatterElements", table, *flat, axis=0, reduction="add")
    return reshape(b, cut(b, summed, {0: (0, count)}), shape)
