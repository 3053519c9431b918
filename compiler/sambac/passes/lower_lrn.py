"""Local response normalisation as a 1x1 convolution and square roots.

With t = bias + alpha / size * (sum of x^2 over `size` neighbouring channels),

    LRN(x)  ->  x / t^beta,   t = Conv(x * x, W, bias),   t^(1/2) = Sqrt(t)
                              t^(3/4) = Sqrt(t) * Sqrt(Sqrt(t)),   t^1 = t

where the 1x1 weight W is a band matrix of alpha / size; for beta of 1/2, 3/4 and 1, bias > 0,
alpha >= 0, float32, and at most 512 channels. onnxruntime's own kernel raises every
element to a power with scalar code and leaves the blocked layout; this form takes 0.2 to 0.5 of
its time. A square that overflows spreads to all channels of its pixel instead of `size`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute

from .rewriting import Rule, RulePass

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
    weight = editor.initializer(_band(channels, size, alpha / size), f"{stem}_window")
    offset = editor.initializer(np.full(channels, bias, np.float32), f"{stem}_bias")
    square = editor.op("Mul", x, x, like=x)
    base = editor.op("Conv", square, weight, offset, like=x)
    editor.replace(node, "Div", x, _power(editor, base, beta))
    return None


def _band(channels: int, size: int, value: float) -> Array:
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
