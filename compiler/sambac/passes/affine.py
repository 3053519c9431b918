"""Scales and shifts per channel: what several passes fold into other operators.

With a and b constants per channel, Affine(x) = a * x + b is one of

    BatchNormalization(x)    a = scale / sqrt(var + epsilon), b = bias - mean * a
    x * c,  x / c            a = c or 1 / c                   b = 0
    x + c,  x - c            a = 1                            b = c or -c

All of it in float64, to be rounded once when it has been folded. Splats stay splats.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_uniform
from sambac.graph.nodes import float_attribute, int_attribute

from .rewriting import combine, constant, present, used

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
