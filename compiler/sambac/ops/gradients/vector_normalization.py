"""Gradients of normalisations without parameters: to a norm, to a deviation, by neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, int_attribute
from sambac.ops.family import InputGradient

from .rules import apply_along, cast, incoming, integers_attribute, operand, sign
from .windows import Array

Gradients = Sequence[InputGradient | None]


def lp_normalization(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = x / n, n = |x|_p: dx = (dy - s sum(dy y)) / n with s = y for p = 2, sign(x) for p = 1.

    Where n is 0, y is constantly 0, and so is dx.
    """
    x, y, dy = operand(node, 0), node.outputs[0], incoming(node, grads)
    axis, power = int_attribute(node, "axis", -1), int_attribute(node, "p", 2)

    def make() -> ir.Value:
        norm = b.op("ReduceL2" if power == 2 else "ReduceL1", x, [axis], keepdims=1)
        zero = cast(b, b.op("Equal", norm, 0.0), x)
        inverse = b.op("Div", b.op("Sub", 1.0, zero), b.op("Add", norm, zero))
        along = b.op("ReduceSum", b.op("Mul", dy, y), [axis], keepdims=1)
        slope = y if power == 2 else sign(b, x)
        return b.op("Mul", b.op("Sub", dy, b.op("Mul", slope, along)), inverse)

    return (make,)


_MEAN_VARIANCE_EPSILON = 1e-9
_MEAN_VARIANCE_AXES = (0, 2, 3)


def mean_variance_normalization(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Gradients:
    """y = (x - mean) / (std + 1e-9): dx = (dy - mean(dy) - y mean(dy y)) / std.

    Means are over the axes of the node.
    """
    x, y, dy = operand(node, 0), node.outputs[0], incoming(node, grads)
    axes = integers_attribute(node, "axes") or _MEAN_VARIANCE_AXES

    def mean(value: ir.Value) -> ir.Value:
        return b.op("ReduceMean", value, axes, keepdims=1)

    def make() -> ir.Value:
        c = b.op("Sub", x, mean(x))
        deviation = b.op("Sqrt", mean(b.op("Mul", c, c)))
        curved = b.op("Mul", y, mean(b.op("Mul", dy, y)))
        rest = b.op("Sub", b.op("Sub", dy, mean(dy)), curved)
        return b.op("Div", rest, b.op("Add", deviation, _MEAN_VARIANCE_EPSILON))

    return (make,)


def local_response_normalization(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Gradients:
    """y = x t^-beta, t = bias + k B x^2: dx = dy t^-beta - 2 beta k x B^T(dy y / t).

    B [C, C] is 1 where a channel is in the window of another, and k = alpha / size.
    """
    x, y, dy = operand(node, 0), node.outputs[0], incoming(node, grads)
    beta, bias = float_attribute(node, "beta", 0.75), float_attribute(node, "bias", 1.0)
    size = int_attribute(node, "size", 1)
    share = float_attribute(node, "alpha", 1e-4) / size
    window = _neighbours(shape_of(x)[1], size)

    def make() -> ir.Value:
        t = b.op("Add", apply_along(b, b.op("Mul", x, x), 1, share * window), bias)
        straight = b.op("Mul", dy, _power(b, t, beta))
        through = b.op("Div", b.op("Mul", dy, y), t)
        spread = apply_along(b, through, 1, -2 * beta * share * window.T)
        return b.op("Add", straight, b.op("Mul", x, spread))

    return (make,)


def _neighbours(channels: int, size: int) -> Array:
    """Return B [C, C]: 1 where the second channel is in the window of the first."""
    before = (size - 1) // 2
    distance = np.arange(channels)[None, :] - np.arange(channels)[:, None]
    return ((distance >= -before) & (distance <= size - 1 - before)).astype(np.float64)


def _power(b: Editor, t: ir.Value, beta: float) -> ir.Value:
    """Return t^-beta; the usual power of 3/4 is made of roots, which are far faster."""
    if beta == 0.75:
        root = b.op("Sqrt", t)
        return b.op("Reciprocal", b.op("Mul", root, b.op("Sqrt", root)))
    return b.op("Pow", t, -beta)
