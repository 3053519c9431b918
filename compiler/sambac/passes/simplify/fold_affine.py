"""Scales and shifts per channel, folded into the convolution or normalisation before them.

With a and b constants per channel, Affine(x) = a * x + b is one of

    BatchNormalization(x)    a = scale / sqrt(var + epsilon), b = bias - mean * a
    x * c,  x / c            a = c or 1 / c                   b = 0
    x + c,  x - c            a = 1                            b = c or -c

All of it in float64, to be rounded once when it has been folded. Splats stay splats.
`FoldIntoConv`:

    Affine(Conv(x, W, B))            ->  Conv(x, a * W, a * B + b)
    Affine(ConvTranspose(x, W, B))   ->  ConvTranspose(x, a * W, a * B + b)

if W, B, a and b are constants, nothing else reads W or the convolution's result, and the new
numbers, computed in float64 and rounded once, are finite. A fill stays a fill: a convolution
whose weight is one is left alone where a would make it real.

`FoldIntoNormalization`:

    Affine(BatchNormalization(x, scale, bias))  ->  BatchNormalization(x, a * scale, a * bias + b)

if all of it is constant, nothing else reads the normalisation's result, and the new numbers,
computed in float64 and rounded once, are finite. onnxruntime does not do this; DenseNet saves
two operators after each of its 62 normalisations that have no convolution before them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_uniform
from sambac.graph.editor import FILL_BYTES, Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute
from sambac.passes.rewriting import (
    Rule,
    RulePass,
    combine,
    constant,
    derived_name,
    has_one_reader,
    made_by,
    present,
    used,
)

AFFINE_OPS = ("BatchNormalization", "Mul", "Div", "Add", "Sub")
"""The operators that may be a scale and shift per channel."""


@dataclass(frozen=True)
class Affine:
    """y = scale * x + shift, both float64 of one element per channel; `sources` made them."""

    x: ir.Value
    scale: Array
    shift: Array
    sources: tuple[ir.Value, ...]


def affine_of(node: ir.Node) -> Affine | str:
    """Read the node as a scale and shift per channel, or tell why it is none."""
    if node.op_type == "BatchNormalization":
        return _from_normalization(node)
    return _from_arithmetic(node)


def normalization_parameters(node: ir.Node) -> list[Array] | None:
    """Return scale, bias, mean and variance of an inference BatchNormalization as float64."""
    if len(node.inputs) < 5:
        return None
    arrays = [constant(value) for value in node.inputs[1:5]]
    if int_attribute(node, "training_mode", 0) or int_attribute(node, "spatial", 1) != 1:
        return None
    if used(node.outputs[1:]) or any(array is None for array in arrays):
        return None
    return [double(array) for array in arrays if array is not None]


def _from_normalization(node: ir.Node) -> Affine | str:
    parameters = normalization_parameters(node)
    x = node.inputs[0]
    if parameters is None or x is None:
        return "the normalisation is not one of constants"
    scale, bias, mean, variance = parameters
    epsilon = float_attribute(node, "epsilon", 1e-5)
    factor = combine(lambda s, v: s / np.sqrt(v + epsilon), scale, variance)
    shift = combine(lambda b, m, a: b - m * a, bias, mean, factor)
    return Affine(x, factor, shift, present(node.inputs[1:]))


def _from_arithmetic(node: ir.Node) -> Affine | str:
    left, right = node.inputs[0], node.inputs[1]
    if node.op_type in ("Add", "Mul") and constant(left) is not None:
        left, right = right, left
    array = constant(right)
    if left is None or array is None:
        return "the other operand is no constant"
    channels = _per_channel(array, left)
    if channels is None:
        return "the constant does not go by channels"
    one, none = np.ones_like(channels), np.zeros_like(channels)
    scale, shift = {
        "Mul": (channels, none),
        "Div": (combine(lambda c: 1 / c, channels), none),
        "Add": (one, channels),
        "Sub": (one, combine(np.negative, channels)),
    }[node.op_type]
    return Affine(left, scale, shift, present([right]))


def _per_channel(array: Array, x: ir.Value) -> Array | None:
    """Return a constant that broadcasts along axis 1 of `x` as float64 of shape (C,) or (1,)."""
    if x.shape is None or len(x.shape) < 2 or array.ndim > len(x.shape) or array.size == 0:
        return None
    shape = (1,) * (len(x.shape) - array.ndim) + array.shape
    channels = x.shape[1]
    if array.size != shape[1] or (shape[1] != 1 and shape[1] != channels):
        return None
    return double(array).reshape(-1)


def double(array: Array) -> Array:
    """Return the numbers as float64."""
    return combine(lambda item: item.astype(np.float64), array)


def rounded(array: Array, like: Array) -> Array:
    """Return the numbers in the type of `like`."""
    return combine(lambda item: item.astype(like.dtype), array)


def is_finite(array: Array) -> bool:
    """Tell whether every number is finite."""
    sample = array.reshape(-1)[:1] if is_uniform(array) else array
    return bool(np.isfinite(sample.astype(np.float64, copy=False)).all())


_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def fold_into_conv(editor: Editor, node: ir.Node) -> str | None:
    """Affine(Conv(x, W, B)) -> Conv(x, a * W, a * B + b)."""
    affine = affine_of(node)
    if isinstance(affine, str):
        return affine
    conv = made_by(affine.x, "Conv", "ConvTranspose")
    if conv is None or not has_one_reader(affine.x):
        return "the input is no convolution of which this is the only reader"
    weight, bias = conv.inputs[1], input_at(conv, 2)
    kernel = constant(weight)
    offset = constant(bias) if bias is not None else np.zeros((1,))
    if kernel is None or weight is None or offset is None or weight.dtype not in _FLOATS:
        return "the weight or the bias is no constant"
    if len(weight.uses()) != 1 or weight.is_graph_output():
        return "the weight has another reader"
    groups = int_attribute(conv, "group", 1)
    count = kernel.shape[0] if conv.op_type == "Conv" else kernel.shape[1] * groups
    scale = np.broadcast_to(affine.scale, (count,))
    new_kernel = _scaled(conv.op_type, kernel, scale, groups)
    new_bias = combine(lambda a, c, b: a * c + b, scale, double(offset), affine.shift)
    if is_uniform(kernel) and not is_uniform(new_kernel) and kernel.nbytes > FILL_BYTES:
        return "the weight is a fill and would become real"
    if not (is_finite(new_kernel) and is_finite(new_bias)):
        return "the folded numbers would not be finite"
    origin = (weight, *present([bias]), *affine.sources)
    editor.rewrite(conv)  # its constants stand where those that it had stood
    inputs = [
        conv.inputs[0],
        editor.initializer(new_kernel, derived_name(weight, "folded"), origin=origin),
    ]
    if bias is not None or np.any(new_bias):
        name = derived_name(weight, "shift") if bias is None else derived_name(bias, "folded")
        full = np.broadcast_to(rounded(new_bias, kernel), (count,))
        inputs.append(editor.initializer(full, name, origin=origin))
    new = editor.replace(node, conv.op_type, *inputs)
    new.attributes.update(conv.attributes)
    new.name = conv.name
    editor.remove(conv)
    return None


def _scaled(op_type: str, kernel: Array, scale: Array, groups: int) -> Array:
    """Scale the kernel by output channel, in its own dtype, rounding once."""

    def product(weight: Array, factor: Array) -> Array:
        return (double(weight) * factor).astype(kernel.dtype)

    window = (1,) * (kernel.ndim - 2)
    if op_type == "Conv":
        return combine(product, kernel, scale.reshape(-1, 1, *window))
    grouped = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:])
    factor = scale.reshape(groups, 1, -1, *window)
    return combine(product, grouped, factor).reshape(kernel.shape)


@dataclass(frozen=True)
class FoldIntoConv(RulePass):
    """Fold scales and shifts per channel into convolutions."""

    name: ClassVar[str] = "fold_into_conv"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Conv", "ConvTranspose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(AFFINE_OPS, (fold_into_conv,))


def fold_into_normalization(editor: Editor, node: ir.Node) -> str | None:
    """Affine(BatchNormalization(x)) -> BatchNormalization(x), a * scale, a * bias + b."""
    affine = affine_of(node)
    if isinstance(affine, str):
        return affine
    inner = made_by(affine.x, "BatchNormalization")
    if inner is None or not has_one_reader(affine.x):
        return "the input is no normalisation of which this is the only reader"
    parameters = normalization_parameters(inner)
    content = constant(inner.inputs[1])
    if parameters is None or content is None:
        return "the normalisation is not one of constants"
    scale, bias = parameters[:2]
    factor = np.broadcast_to(affine.scale, scale.shape)
    arrays = (
        combine(np.multiply, scale, factor),
        combine(lambda c, a, b: a * c + b, bias, factor, affine.shift),
    )
    if not all(is_finite(array) for array in arrays):
        return "the folded numbers would not be finite"
    own = present(inner.inputs[1:3])
    folded = [
        editor.initializer(
            rounded(array, content),
            derived_name(value, "folded"),
            origin=(value, *own, *affine.sources),
        )
        for array, value in zip(arrays, own, strict=True)
    ]
    new = editor.replace(node, "BatchNormalization", inner.inputs[0], *folded, *inner.inputs[3:5])
    new.attributes.update(inner.attributes)
    new.name = inner.name
    editor.remove(inner)
    return None


@dataclass(frozen=True)
class FoldIntoNormalization(RulePass):
    """Fold scales and shifts per channel into inference normalisations."""

    name: ClassVar[str] = "fold_into_normalization"
    operators: ClassVar[frozenset[str] | None] = frozenset({"BatchNormalization"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        AFFINE_OPS, (fold_into_normalization,)
    )
