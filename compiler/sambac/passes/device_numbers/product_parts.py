"""Products as a multiplier makes them, part by part, and sums in short accumulators.

With t(x, d) for the first d digits of x, where HiFi3 wants one more product:

    P(l, r)         ->  P(t(l, 7), t(r, 10)) + P(t(l, 11) - t(l, 7), t(r, 5))     bilinear P

and with R for rounding to the format of the accumulator, 16 elements of the inner axis at a time:

    MatMul(l, r)    ->  s, where  s = R(s + MatMul(l[.., k], r[k, ..]))  from s = 0
    Gemm(l, r, c)   ->  alpha * s + beta * c

Operators with products of matrices inside are written as the products first (`expand_products`),

    y = Attention(q, k, v)  ->  y = MatMul(Softmax(MatMul(q, Transpose(k)) * scale), v)

for rules that want fidelities, accumulators or blocks of an operator that one kernel computes. What
it is made of remembers it, so that a rule of that operator is one of its parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor, shape_of
from sambac.graph.function_bodies import body_of, call_body
from sambac.graph.nodes import all_nodes, float_attribute, input_at, int_attribute, static_shape
from sambac.numerics import BLOCK, NumberFormat
from sambac.ops.family import qualified
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.inline_functions import InlineFunctions
from sambac.passes.legalize.lift_constants import LiftConstants
from sambac.passes.legalize.names_and_order import SortNodes, UniqueNames

from .number_ops import NumberSpec, put
from .wanted_numbers import FACTORS, PRODUCTS, MatchedRules, note_parts

Pair = tuple[ir.Value, ir.Value]
Pairs = Sequence[Pair]
"""Left and right operands of the products that are summed."""

STEPWISE = ("MatMul", "Gemm")
"""Products that are summed step by step in an accumulator; others are rounded once."""


def added(editor: Editor, node: ir.Node, pairs: Pairs) -> ir.Node:
    """Return the sum in the place of `node`, a product, that adds up one for each of `pairs`."""
    result = node.outputs[0]
    first = _like(editor, node, [*pairs[0], *node.inputs[2:]], f"{result.name}_first")
    others = [_like(editor, node, pair, f"{result.name}_more") for pair in pairs[1:]]
    for other in others[:-1]:
        first = editor.op("Add", first, other, like=result)
    return editor.replace(node, "Add", first, others[-1])


def accumulated(editor: Editor, node: ir.Node, pairs: Pairs, form: NumberFormat) -> ir.Node:
    """Return what is in the place of `node`, one of `STEPWISE`: its sum in an accumulator.

    Raises `CompileError` for matrices of open sizes.
    """
    for value in (*pairs[0], node.outputs[0]):
        if static_shape(value) is None:
            raise CompileError(
                f"'{node.name}' is to be summed in {form.name}, for which the sizes of "
                f"'{value.name}' have to be known; fix the shapes of inputs (--input NAME=1x64)"
            )
    total = _summed(editor, [_matrices(editor, node, pair) for pair in pairs], form)
    shaped = editor.op("Reshape", total, list(shape_of(node.outputs[0])))
    if node.op_type == "MatMul":
        return editor.replace(node, "Identity", shaped)
    alpha, beta = (float_attribute(node, name, 1.0) for name in ("alpha", "beta"))
    scaled = editor.op("Mul", shaped, alpha) if alpha != 1 else shaped
    shift = input_at(node, 2)
    if shift is None:
        return editor.replace(node, "Identity", scaled)
    return editor.replace(
        node, "Add", scaled, editor.op("Mul", shift, beta) if beta != 1 else shift
    )


def _like(editor: Editor, node: ir.Node, inputs: Sequence[ir.Value | None], name: str) -> ir.Value:
    """Put an operator like `node` with other operands; return its result."""
    attributes = {key: value.value for key, value in node.attributes.items()}
    return editor.op(
        node.op_type, *inputs, domain=node.domain, like=node.outputs[0], name=name, **attributes
    )


def _matrices(
    editor: Editor, node: ir.Node, pair: tuple[ir.Value, ir.Value]
) -> tuple[ir.Value, ir.Value]:
    """Return the operands of a product as matrices, or stacks of them, that need no turning."""
    left, right = pair
    if node.op_type == "Gemm":
        turned = (int_attribute(node, name) for name in ("transA", "transB"))
        left, right = (
            editor.op("Transpose", value, perm=[1, 0]) if turn else value
            for value, turn in zip(pair, turned, strict=True)
        )
    if len(shape_of(left)) == 1:
        left = editor.op("Reshape", left, [1, *shape_of(left)])
    if len(shape_of(right)) == 1:
        right = editor.op("Reshape", right, [*shape_of(right), 1])
    return left, right


def _summed(editor: Editor, pairs: Pairs, form: NumberFormat) -> ir.Value:
    """Return the sum of products of matrices, rounded to `form` after every step."""
    pieces = [
        piece
        for left, right in pairs
        for piece in (_stepped(editor, left, -1), _stepped(editor, right, -2))
    ]
    (*outer, rows, _), (*inner, _, columns) = map(shape_of, pairs[0])
    sizes = (*np.broadcast_shapes(tuple(outer), tuple(inner)), rows, columns)
    start = editor.zeros(editor.fresh("sum", pairs[0][0].dtype, sizes))

    def step(b: Editor, states: Values, slices: Values) -> tuple[Values, Values]:
        total = states[0]
        for index in range(0, len(slices), 2):
            total = b.op("Add", total, b.op("MatMul", slices[index], slices[index + 1]))
        return [put(b, total, NumberSpec(form))], []

    (last,), _ = scan(editor, step, [start], pieces)
    return last


def _stepped(editor: Editor, value: ir.Value, axis: int) -> ir.Value:
    """Return `value` with `axis` in pieces of 16 elements, the axis of pieces in front."""
    shape = shape_of(value)
    place = axis % len(shape)
    missing = -shape[place] % BLOCK
    if missing:
        ends = [0] * (2 * len(shape))
        ends[len(shape) + place] = missing
        value = editor.op("Pad", value, ends)
    count = (shape[place] + missing) // BLOCK
    pieces = editor.op("Reshape", value, [*shape[:place], count, BLOCK, *shape[place + 1 :]])
    rest = [index for index in range(len(shape) + 1) if index != place]
    return editor.op("Transpose", pieces, perm=[place, *rest])


_CLEAN_UP = (InlineFunctions(), UniqueNames(), SortNodes(), LiftConstants(), InferShapes())


def expand_products(model: ir.Model, matched: MatchedRules) -> None:
    """Expand in `model` what has a body, subgraphs included."""
    count = 0
    for node in all_nodes(model.graph):
        name = qualified(node.domain, node.op_type)
        if name not in FACTORS or name in PRODUCTS or not _matters(node, matched):
            continue
        body = body_of(node, model.opset_imports)
        if body is not None:
            note_parts(node, body)
            call_body(model, node, body, count)
            count += 1
    for step in _CLEAN_UP if count else ():
        step(model)


def _matters(node: ir.Node, matched: MatchedRules) -> bool:
    return any(matched.of(node, stage).inside(len(node.inputs)) for stage in ("fwd", "bwd"))
