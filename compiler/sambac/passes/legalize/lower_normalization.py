"""Normalisations that have no kernel, or a slow one, by other operators.

Local response normalisation as a 1x1 convolution and square roots (`LowerLrn`). With t = bias +
alpha / size * (sum of x^2 over `size` neighbouring channels),

    LRN(x)  ->  x / t^beta,   t = Conv(x * x, W, bias),   t^(1/2) = Sqrt(t)
                              t^(3/4) = Sqrt(t) * Sqrt(Sqrt(t)),   t^1 = t

where the 1x1 weight W is a band matrix of alpha / size; for beta of 1/2, 3/4 and 1, bias > 0,
alpha >= 0, float32, and at most 512 channels. onnxruntime's own kernel raises every
element to a power with scalar code and leaves the blocked layout; this form takes 0.2 to 0.5 of
its time. A square that overflows spreads to all channels of its pixel instead of `size`.

Group normalisation as one of instances, which has a kernel (`LowerGroupNormalization`). With C
channels in G groups, and D elements in a group of one image,

    GroupNormalization(x, scale, bias; G)
        ->  BatchNormalization(Reshape(z, shape of x), scale, bias, 0, 1; epsilon = 0)
            z = InstanceNormalization(Reshape(x, [N, G, D]), 1, 0)

for float32 of known shape, since opset 21 (before, scale and bias had an element for each group);
16-bit numbers are float32 ones meanwhile. The body that ONNX defines takes E[x^2] - E[x]^2 for the
variance, which loses all digits where the mean is large, and a dozen operators; the kernel takes
the mean of (x - E[x])^2.

Normalisation by mean and deviation as what it means (`LowerMeanVariance`). With c = x - mean(x),

    MeanVarianceNormalization(x)  ->  c / (Sqrt(mean(c * c)) + 1e-9)

onnxruntime's kernel adds no 1e-9: where all numbers are equal it gives NaN instead of 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass

from .infer_shapes import infer

_BETAS = (0.5, 0.75, 1.0)
_MAX_CHANNELS = 512


def lower_lrn(editor: Editor, node: ir.Node) -> str | None:
    """LRN(x) -> x / (bias + W * x^2)^beta."""
    x = node.inputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT or x.shape is None or len(x.shape) != 4:
        return "the input is no float32 image"
    channels = x.shape[1]
    if not isinstance(channels, int) or not 0 < channels <= _MAX_CHANNELS:
        return "there are too many channels, or an unknown number"
    alpha = float_attribute(node, "alpha", 1e-4)
    beta = float_attribute(node, "beta", 0.75)
    bias = float_attribute(node, "bias", 1.0)
    if beta not in _BETAS or bias <= 0 or alpha < 0:
        return "the power is not made of square roots, or its base may not be positive"
    size = int_attribute(node, "size", 1)
    stem = node.outputs[0].name
    weight = editor.initializer(band(channels, size, alpha / size), f"{stem}_window")
    offset = editor.initializer(np.full(channels, bias, np.float32), f"{stem}_bias")
    square = editor.op("Mul", x, x, like=x)
    base = editor.op("Conv", square, weight, offset, like=x)
    editor.replace(node, "Div", x, _power(editor, base, beta))
    return None


def band(channels: int, size: int, value: float) -> Array:
    """Return W [C, C, 1, 1]: `value` where an input channel is in an output channel's window."""
    before, after = (size - 1) // 2, size - 1 - (size - 1) // 2
    distance = np.arange(channels)[None, :] - np.arange(channels)[:, None]
    window = (distance >= -before) & (distance <= after)
    return np.where(window, np.float32(value), np.float32(0)).reshape(channels, channels, 1, 1)


def _power(editor: Editor, base: ir.Value, beta: float) -> ir.Value:
    if beta == 1:
        return base
    half = editor.op("Sqrt", base, like=base)
    if beta == 0.5:
        return half
    quarter = editor.op("Sqrt", half, like=base)
    return editor.op("Mul", half, quarter, like=base)


@dataclass(frozen=True)
class LowerLrn(RulePass):
    """Rewrite local response normalisation to operators with fast kernels."""

    name: ClassVar[str] = "lower_lrn"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"LRN": (lower_lrn,)}


_SCALE_BY_CHANNEL = 21
_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def lower_group_normalization(editor: Editor, node: ir.Node) -> str | None:
    """GroupNormalization -> InstanceNormalization of groups, then scale and bias."""
    x, scale, bias = node.inputs[:3]
    shape = static_shape(x)
    if x is None or scale is None or bias is None or shape is None or x.dtype not in _DTYPES:
        return "the input is no tensor of known shape of floats of at most 32 bits"
    if editor.opset < _SCALE_BY_CHANNEL:
        return "scale and bias have an element for each group"
    groups = int_attribute(node, "num_groups")
    batch, channels, *sizes = shape
    if min(shape) == 0 or channels % groups:
        return "groups are empty or unequal"
    rows = (batch, groups, channels // groups * prod(sizes))
    dtype = x.dtype
    x, scale, bias = (_as_float32(editor, value) for value in (x, scale, bias))
    stem = str(node.outputs[0].name)

    def numbers(values: object, name: str) -> ir.Value:
        return editor.initializer(np.asarray(values), f"{stem}_{name}")

    flat = ir.val("", x.dtype, rows)
    grouped = editor.op("Reshape", x, numbers(rows, "groups"), like=flat)
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    epsilon = float_attribute(node, "epsilon", 1e-5)
    normal = editor.op(
        "InstanceNormalization",
        grouped,
        numbers(ones, "one"),
        numbers(zeros, "zero"),
        like=flat,
        epsilon=epsilon,
    )
    whole = editor.op("Reshape", normal, numbers(shape, "shape"), like=x)
    mean, variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    statistics = [numbers(mean, "mean"), numbers(variance, "variance")]
    parts = [whole, scale, bias, *statistics]
    if dtype == ir.DataType.FLOAT:
        editor.replace(node, "BatchNormalization", *parts, epsilon=0.0)
    else:
        wide = editor.op("BatchNormalization", *parts, like=x, epsilon=0.0)
        editor.replace(node, "Cast", wide, to=int(dtype))
    return None


def _as_float32(editor: Editor, value: ir.Value) -> ir.Value:
    if value.dtype == ir.DataType.FLOAT:
        return value
    wide = ir.val("", ir.DataType.FLOAT, value.shape)
    return editor.op("Cast", value, like=wide, to=int(ir.DataType.FLOAT))


@dataclass(frozen=True)
class LowerGroupNormalization(RulePass):
    """Rewrite group normalisation to operators that have kernels.

    Types and shapes are inferred anew where that was done: behind the operator itself, the ONNX
    library knows none.
    """

    name: ClassVar[str] = "lower_group_normalization"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GroupNormalization": (lower_group_normalization,)
    }

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        result = super().call(model)
        if result.modified:
            infer(model)
        return result


_AXES_ARE_INPUTS = 18
_AXES = (0, 2, 3)


def lower_mean_variance(editor: Editor, node: ir.Node) -> str | None:
    """MeanVarianceNormalization(x) -> c / (Sqrt(mean(c * c)) + 1e-9), c = x - mean(x)."""
    x = node.inputs[0]
    if x is None or x.shape is None or x.dtype is None:
        return "the input is of unknown rank or type"
    named, rank = node.attributes.get("axes"), len(x.shape)
    axes = [axis % rank for axis in (_AXES if named is None else named.as_ints())]
    centred = editor.op("Sub", x, _mean(editor, x, axes), like=x)
    deviation = editor.op("Sqrt", _mean(editor, editor.op("Mul", centred, centred, like=x), axes))
    least = np.array(1e-9, x.dtype.numpy())
    editor.replace(node, "Div", centred, editor.op("Add", deviation, least, like=deviation))
    return None


def _mean(editor: Editor, x: ir.Value, axes: list[int]) -> ir.Value:
    if editor.opset >= _AXES_ARE_INPUTS:
        return editor.op("ReduceMean", x, axes, keepdims=1)
    return editor.op("ReduceMean", x, axes=axes, keepdims=1)


@dataclass(frozen=True)
class LowerMeanVariance(RulePass):
    """Rewrite normalisation by mean and deviation to operators that divide by no zero."""

    name: ClassVar[str] = "lower_mean_variance"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "MeanVarianceNormalization": (lower_mean_variance,)
    }
