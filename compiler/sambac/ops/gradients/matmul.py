"""Gradients of matrix products, of Einsum for every equation that ONNX allows, and of Det.

A product with a plain matrix on its right is one product of matrices however many batch axes its
left side has, so that the gradient of the weight needs no sum over batches.

That of Det is written by cofactors, which singular matrices have too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod
from string import ascii_letters
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.equations import ELLIPSIS, Equation, equation_of
from sambac.graph.nodes import float_attribute, int_attribute, static_shape
from sambac.ops.family import GradientRule, InputGradient

from .rules import (
    Point,
    column_sums,
    dtype_of,
    flatten,
    incoming,
    kept_where,
    number,
    operand,
    positive,
    reshape,
    swap_last,
    transpose,
    unary,
)

Gradients = Sequence[ir.Value | None]


def _matmul(b: Editor, node: ir.Node, gradients: Gradients) -> Sequence[InputGradient | None]:
    """Y = A B: dA = dY B^T, dB = A^T dY; a vector counts as a matrix of one row or column."""
    return products(b, operand(node, 0), operand(node, 1), incoming(node, gradients))


def products(
    b: Editor, left: ir.Value, right: ir.Value, dy: ir.Value
) -> tuple[InputGradient, InputGradient]:
    """Return the makers of both gradients of `left @ right`; the walker sums broadcast axes."""
    row, column = rank_of(left) == 1, rank_of(right) == 1
    batch = shape_of(dy)[: rank_of(dy) - (not row) - (not column)]
    a = reshape(b, left, (1, *shape_of(left))) if row else left
    c = reshape(b, right, (*shape_of(right), 1)) if column else right
    dy = reshape(b, dy, (*batch, shape_of(a)[-2], shape_of(c)[-1]))
    one = prod(shape_of(c)[:-2]) == 1 and rank_of(a) >= rank_of(c)
    to_left, to_right = (_one_product if one else _many_products)(b, a, c, dy)
    return lambda: _like(b, to_left(), left), lambda: _like(b, to_right(), right)


def _one_product(
    b: Editor, left: ir.Value, right: ir.Value, dy: ir.Value
) -> tuple[InputGradient, InputGradient]:
    """One matrix on the right: all rows of the left side are one matrix."""
    rows = flatten(b, dy, -1)
    return (
        lambda: b.op("Gemm", rows, flatten(b, right, -1), transB=1),
        lambda: b.op("Gemm", flatten(b, left, -1), rows, transA=1),
    )


def _many_products(
    b: Editor, left: ir.Value, right: ir.Value, dy: ir.Value
) -> tuple[InputGradient, InputGradient]:
    """A product for each element of the batch."""
    return (
        lambda: b.op("MatMul", dy, swap_last(b, right)),
        lambda: b.op("MatMul", swap_last(b, left), dy),
    )


def _like(b: Editor, gradient: ir.Value, value: ir.Value) -> ir.Value:
    """Give `gradient` the shape of `value` unless it has still to be summed."""
    if prod(shape_of(gradient)) != prod(shape_of(value)):
        return gradient
    return reshape(b, gradient, shape_of(value))


def _fused_matmul(b: Editor, node: ir.Node, gradients: Gradients) -> Sequence[InputGradient | None]:
    """Y = alpha A' B': as MatMul, times alpha, with both gradients in the order of A and B."""
    dy = incoming(node, gradients)
    alpha = float_attribute(node, "alpha", 1.0)
    orders = [_order(node, index, letter) for index, letter in enumerate("AB")]
    turned = [transpose(b, operand(node, i), order) for i, order in enumerate(orders)]

    def back(make: InputGradient, order: list[int]) -> InputGradient:
        return lambda: _undo(b, make(), order, alpha)

    makers = products(b, turned[0], turned[1], dy)
    return [back(make, order) for make, order in zip(makers, orders, strict=True)]


def _undo(b: Editor, gradient: ir.Value, order: list[int], factor: float) -> ir.Value:
    """Return `gradient` times `factor`, with its last axes as they were before `order`."""
    if factor != 1.0:
        gradient = b.op("Mul", gradient, factor)
    extra = rank_of(gradient) - len(order)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return transpose(b, gradient, [*range(extra), *(extra + axis for axis in inverse)])


def _order(node: ir.Node, index: int, letter: str) -> list[int]:
    """Return the order in which a FusedMatMul reads the axes of A or B."""
    axes = list(range(rank_of(operand(node, index))))
    if int_attribute(node, f"transBatch{letter}"):
        axes = [*axes[1:-1], axes[0], axes[-1]]
    if int_attribute(node, f"trans{letter}") and len(axes) > 1:
        axes[-2:] = reversed(axes[-2:])
    return axes


def _gemm(b: Editor, node: ir.Node, gradients: Gradients) -> Sequence[InputGradient | None]:
    """Y = alpha A' B' + beta C: dA' = alpha dY B'^T, dB' = alpha A'^T dY, dC = beta sum(dY).

    A' and B' are A and B, transposed where `transA` and `transB` say so; dC is summed over the axes
    along which C is broadcast.
    """
    return _gemm_gradients(b, node, incoming(node, gradients))


def _gemm_gradients(b: Editor, node: ir.Node, dy: ir.Value) -> Sequence[InputGradient | None]:
    left, right = operand(node, 0), operand(node, 1)
    flip_left, flip_right = int_attribute(node, "transA"), int_attribute(node, "transB")
    alpha = float_attribute(node, "alpha", 1.0)

    def product(x: ir.Value, y: ir.Value, flip_x: int, flip_y: int) -> ir.Value:
        return b.op("Gemm", x, y, alpha=alpha, transA=flip_x, transB=flip_y)

    def to_left() -> ir.Value:
        if flip_left:
            return product(right, dy, flip_right, 1)
        return product(dy, right, 0, 1 - flip_right)

    def to_right() -> ir.Value:
        if flip_right:
            return product(dy, left, 1, flip_left)
        return product(left, dy, 1 - flip_left, 0)

    def to_added() -> ir.Value:
        return _bias(b, dy, operand(node, 2), float_attribute(node, "beta", 1.0))

    return (to_left, to_right, to_added)[: len(node.inputs)]


def _fused_gemm(b: Editor, node: ir.Node, gradients: Gradients) -> Sequence[InputGradient | None]:
    """Y = f(Z), Z as of Gemm: dZ = dY f'(Z), which Y says, and on as for Gemm."""
    at = Point(node, incoming(node, gradients))
    if _activation(node) == "Relu":
        return _gemm_gradients(b, node, kept_where(b, b.op("Greater", at.y, 0.0), at))
    slope = _SLOPES[_activation(node)](b, node)
    return _gemm_gradients(b, node, b.op("Mul", at.dy, slope))


def _activation(node: ir.Node) -> str:
    attribute = node.attributes.get("activation")
    return "" if attribute is None else attribute.as_string()


def _leaky_slope(b: Editor, node: ir.Node) -> ir.Value:
    """1 where Y > 0, else alpha."""
    alpha = float_attribute(node, "activation_alpha", 0.01)
    rising = b.op("Mul", positive(b, node.outputs[0]), 1 - alpha)
    return b.op("Add", rising, alpha)


def _sigmoid_slope(b: Editor, node: ir.Node) -> ir.Value:
    """Y (1 - Y)."""
    y = node.outputs[0]
    return b.op("Sub", y, b.op("Mul", y, y))


def _tanh_slope(b: Editor, node: ir.Node) -> ir.Value:
    """1 - Y^2."""
    y = node.outputs[0]
    return b.op("Sub", number(b, 1.0, y), b.op("Mul", y, y))


_SLOPES: Mapping[str, Callable[[Editor, ir.Node], ir.Value]] = MappingProxyType({
    "LeakyRelu": _leaky_slope,
    "Relu": lambda b, node: positive(b, node.outputs[0]),
    "Sigmoid": _sigmoid_slope,
    "Tanh": _tanh_slope,
})  # fmt: skip


def unknown_activation(node: ir.Node) -> str | None:
    """Return why a FusedGemm has no gradient: its activation is one that its result hides."""
    activation = _activation(node)
    if activation in _SLOPES:
        return None
    return f"its activation is {activation or 'missing'}, not one of {', '.join(_SLOPES)}"


def _bias(b: Editor, dy: ir.Value, bias: ir.Value, factor: float) -> ir.Value:
    """Return factor * dY, summed over its rows if `bias` is one row."""
    rows, columns = shape_of(dy)
    if rows > 1 and shape_of(bias) in ((columns,), (1, columns)):
        dy = reshape(b, column_sums(b, dy), shape_of(bias))
    return dy if factor == 1.0 else b.op("Mul", dy, factor)


_LARGEST = 32
"""A matrix of this size has a million elements in its minors."""


def determinant(b: Editor, at: Point) -> ir.Value:
    """dx[i, j] = dy * (-1)^(i + j) * the determinant of x without row i and column j."""
    size = shape_of(at.x)[-1]
    if size == 0:
        return at.x
    scale = reshape(b, at.dy, (*shape_of(at.dy), 1, 1))
    if size == 1:
        return scale
    places = np.arange(size)
    others = np.array([np.delete(places, place) for place in places])
    rows = b.op("Gather", at.x, others, axis=-2)
    minors = b.op("Gather", rows, others, axis=-1)  # [..., i, size - 1, j, size - 1]
    lead = rank_of(at.x) - 2
    order = (*range(lead), lead, lead + 2, lead + 1, lead + 3)
    signs = (-1.0) ** np.add.outer(places, places)
    cofactors = b.op(
        "Mul", b.op("Det", transpose(b, minors, order)), signs.astype(dtype_of(at.x).numpy())
    )
    return b.op("Mul", cofactors, scale)


def too_large(node: ir.Node) -> str | None:
    """Return why a Det has no gradient: its matrices are larger than 32 by 32."""
    shape = static_shape(node.inputs[0])
    if shape is None or shape[-1] <= _LARGEST:
        return None
    return f"its matrices are {shape[-1]} x {shape[-1]}, and {_LARGEST} x {_LARGEST} is the most"


@dataclass(frozen=True)
class _Labels:
    """Labels of the axes of all operands and of the result, one letter each, no ellipsis."""

    terms: tuple[str, ...]
    result: str


def einsum(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x_1 x_2 ..., summed over the labels not in y: dx_i = dy times all other x.

    Summed over what is no label of x_i; spread along labels that are of x_i alone; a label that x_i
    repeats is a diagonal, and zeros lie beside it.
    """
    dy = incoming(node, gradients)
    operands = [value for value in node.inputs if value is not None]
    axes = _labelled(equation_of(node), [rank_of(x) for x in operands])

    def maker(index: int) -> InputGradient:
        return lambda: _operand_gradient(b, axes, operands, index, dy)

    return [maker(index) for index in range(len(operands))]


def _operand_gradient(
    b: Editor, axes: _Labels, operands: Sequence[ir.Value], index: int, dy: ir.Value
) -> ir.Value:
    term, x = axes.terms[index], operands[index]
    others = [i for i in range(len(operands)) if i != index]
    terms = [axes.result, *(axes.terms[i] for i in others)]
    labels = "".join(dict.fromkeys(term))
    reached = "".join(label for label in labels if label in "".join(terms))
    factors = [dy, *(operands[i] for i in others)]
    if (terms, reached) == ([reached], reached):
        gradient = dy
    else:
        gradient = b.op("Einsum", *factors, equation=f"{','.join(terms)}->{reached}")
    return _spread(b, gradient, reached, term, x)


def _spread(b: Editor, gradient: ir.Value, labels: str, term: str, like: ir.Value) -> ir.Value:
    """Return `gradient`, whose axes are `labels`, with the axes of `term` and the sizes of `like`.

    Sizes of `like` that are 1 stay what they are in `gradient`: the walker sums over those axes.
    """
    have = dict(zip(labels, shape_of(gradient), strict=True))
    firsts = [label in have and label not in term[:place] for place, label in enumerate(term)]
    apart = [have[label] if first else 1 for label, first in zip(term, firsts, strict=True)]
    gradient = reshape(b, gradient, apart)
    mask = _diagonals(term, shape_of(like))
    if mask is not None:
        return b.op("Mul", gradient, mask.astype(dtype_of(gradient).numpy()))
    wanted = np.broadcast_shapes(tuple(apart), shape_of(like))
    return gradient if wanted == tuple(apart) else b.op("Expand", gradient, wanted)


def _diagonals(term: str, shape: Sequence[int]) -> np.ndarray[Any, np.dtype[Any]] | None:
    """Return where the places of all repeated labels are equal, None if no label is repeated."""
    if len(set(term)) == len(term):
        return None
    places = np.indices(shape)
    mask = np.ones(shape, np.bool_)
    for axis, label in enumerate(term):
        mask &= places[axis] == places[term.index(label)]
    return mask


def _labelled(equation: Equation, ranks: Sequence[int]) -> _Labels:
    """Return the labels of an equation, with letters for its ellipses and an implied result."""
    hidden = max(rank - _letters(term) for term, rank in zip(equation.terms, ranks, strict=True))
    text = str(equation)
    fresh = "".join(letter for letter in ascii_letters if letter not in text)[:hidden]
    terms = tuple(
        term.replace(ELLIPSIS, fresh[len(fresh) - (rank - _letters(term)) :])
        for term, rank in zip(equation.terms, ranks, strict=True)
    )
    if equation.result is not None:
        return _Labels(terms, equation.result.replace(ELLIPSIS, fresh))
    counts = Counter(chain.from_iterable(terms))
    once = sorted(label for label, count in counts.items() if count == 1 and label not in fresh)
    return _Labels(terms, fresh + "".join(once))


def _letters(term: str) -> int:
    """Count the labels of a term that are written out."""
    return len(term.replace(ELLIPSIS, ""))


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType(
    {
        "Det": unary(determinant),
        "Einsum": einsum,
        "Gemm": _gemm,
        "MatMul": _matmul,
        "com.microsoft.FusedGemm": _fused_gemm,
        "com.microsoft.FusedMatMul": _fused_matmul,
    }
)
