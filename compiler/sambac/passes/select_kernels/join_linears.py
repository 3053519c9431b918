"""A linear layer and the pointwise convolution behind it, as one convolution.

    Conv(Reshape(Transpose(MatMul(x, V) + a)), W, b)  ->  Conv(Reshape(Transpose(x)), W V, W a + b)

with rows of numbers turned into images between, constant weights, nothing else that reads what is
between, and fewer products in one than in both. Heads of segmentation networks bring the features
of each stage to a common width so, and mix them: of SegFormer's head, three quarters of the
arithmetic go.

Weights are multiplied in float64. Results differ by rounding alone, with fewer roundings on their
way. Where x is infinite the result is infinite or NaN, as before, but may be the one for the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, input_at, static_shape
from sambac.passes.rewriting import Rule, RulePass, constant, derived_name, has_one_reader, made_by

from .convolve_first import pointwise_results

_ROWS = 3
"""Axes of what is turned into images: images, pixels, channels."""


@dataclass(frozen=True)
class _Linear:
    """The layer `data` @ `weights` + `bias`, of rows that become images.

    `data` is [images, pixels, channels]; `between` are the operators that go, and `origins` the
    values that its numbers are from.
    """

    data: ir.Value
    weights: Array
    bias: Array
    between: tuple[ir.Node, ...]
    origins: tuple[ir.Value, ...]


def join_linear(editor: Editor, node: ir.Node) -> str | None:
    """Conv(Reshape(Transpose(MatMul(x, V) + a)), W, b) -> Conv(Reshape(Transpose(x)), W V, ..)."""
    results, weight, filters = pointwise_results(node), node.inputs[1], constant(node.inputs[1])
    linear, out = _linear(node.inputs[0]), static_shape(node.outputs[0])
    bias = input_at(node, 2)
    own = np.zeros(1) if bias is None else constant(bias)
    if results is None or weight is None or filters is None or own is None or out is None:
        return "it is not pointwise, or its weight or bias is no constant"
    if linear is None:
        return "it reads no linear layer of its own"
    rows, width = linear.weights.shape
    if rows * results >= width * (rows + results):
        return "one layer would be no less work"
    mixed = filters.reshape(results, width).astype(np.float64)
    with np.errstate(all="ignore"):
        joined = (mixed @ linear.weights.T.astype(np.float64)).astype(np.float32)
        offset = (mixed @ linear.bias.astype(np.float64) + own).astype(np.float32)
    if not (np.isfinite(joined).all() and np.isfinite(offset).all()):
        return "a weight is not finite"
    name, origin = derived_name(weight, "joined"), (weight, *linear.origins)
    turned = editor.op("Transpose", linear.data, perm=(0, 2, 1))
    image = editor.op("Reshape", turned, [out[0], rows, *out[2:]])
    shape = (results, rows, *filters.shape[2:])
    editor.replace(
        node,
        "Conv",
        image,
        editor.initializer(joined.reshape(shape), name, origin),
        editor.initializer(offset, f"{name}_bias", origin),
        **attributes_of(node),
    )
    for each in linear.between:
        editor.remove(each)
    return None


def _linear(image: ir.Value | None) -> _Linear | None:
    """Return the layer whose rows `image` is made of, if that alone reads them."""
    reshape = made_by(image, "Reshape")
    turn = made_by(reshape.inputs[0], "Transpose") if reshape else None
    order = turn.attributes.get("perm") if turn else None
    if reshape is None or turn is None or order is None or tuple(order.as_ints()) != (0, 2, 1):
        return None
    add = made_by(turn.inputs[0], "Add")
    product, bias = _sum(add) if add else (made_by(turn.inputs[0], "MatMul"), None)
    if product is None or product.inputs[0] is None:
        return None
    data, stored = product.inputs[0], product.inputs[1]
    weights, shape = constant(stored), static_shape(turn.outputs[0])
    between = [each for each in (reshape, turn, add, product) if each is not None]
    if any(not has_one_reader(each.outputs[0]) for each in between):
        return None
    if weights is None or weights.ndim != 2 or len(data.shape or ()) != _ROWS or shape is None:
        return None
    if shape[:2] != (static_shape(image) or ())[:2]:
        return None  # channels are not those of the rows
    added = np.zeros(weights.shape[1], np.float32) if bias is None else constant(bias)
    if added is None or added.shape != weights.shape[1:]:
        return None
    origins = tuple(value for value in (stored, bias) if value is not None)
    return _Linear(data, weights, added, tuple(between), origins)


def _sum(add: ir.Node) -> tuple[ir.Node | None, ir.Value | None]:
    """Return the product that `add` is about, and what is added."""
    first, second = add.inputs
    product = made_by(first, "MatMul")
    return (product, second) if product is not None else (made_by(second, "MatMul"), first)


@dataclass(frozen=True)
class JoinLinears(RulePass):
    """Make one convolution of a linear layer and the pointwise convolution that reads it."""

    name: ClassVar[str] = "join_linears"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Conv": (join_linear,)}
