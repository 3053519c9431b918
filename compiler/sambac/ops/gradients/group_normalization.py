"""Gradients of normalisations over groups of channels of an image, or over single channels.

With the centred input c = x - mean, r = 1 / deviation and g = scale * dy, the gradient of a group
of D elements is dx = r (g - sum(g) / D - c r^2 sum(g c) / D), and dscale and dbias of a channel are
the sums of dy c r and of dy over it. All are made of the sums of dy and dy c over each channel of
each image, which are small. Statistics are taken anew, in two passes: the mean, then the mean
square of what is centred.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, int_attribute
from sambac.ops.family import InputGradient

from .rules import column_sums, incoming, operand, reshape
from .statistics import affine, centre, reciprocal_size

_EPSILON = 1e-5

Gradients = Sequence[InputGradient | None]


def instance_normalization(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = scale c r + bias, a row being one channel of one image: see the top of this file."""
    return _grouped(b, node, incoming(node, grads), shape_of(operand(node, 0))[1])


def group_normalization(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = scale c r + bias, a row being a group of channels: see the top of this file."""
    return _grouped(b, node, incoming(node, grads), int_attribute(node, "num_groups"))


def _grouped(b: Editor, node: ir.Node, dy: ir.Value, groups: int) -> Gradients:
    """Return the gradients of x, scale [C] and bias [C], with `groups` rows an image."""
    scale = operand(node, 1)
    shape = shape_of(operand(node, 0))
    batch, channels, *sizes = shape
    members, length = channels // groups, prod(sizes)
    rows, size = batch * groups, members * length
    share = -1.0 / size
    c = centre(b, b.op("Reshape", operand(node, 0), [rows, size]))
    deviation = reciprocal_size(b, c, float_attribute(node, "epsilon", _EPSILON))
    by_channel = (rows, members, length)
    dy3, c3 = reshape(b, dy, by_channel), reshape(b, c, by_channel)
    sums = b.op("ReduceSum", dy3, [-1], keepdims=0)
    products = b.op("ReduceSum", b.op("Mul", dy3, c3), [-1], keepdims=0)

    def data() -> ir.Value:
        weights = b.op("Tile", reshape(b, scale, (groups, members)), [batch, 1])
        slope = b.op("Mul", weights, deviation)
        mean, mean_product = (
            b.op("ReduceSum", b.op("Mul", b.op("Mul", slope, item), share), [-1], keepdims=1)
            for item in (sums, products)
        )
        along = b.op("Mul", b.op("Mul", deviation, deviation), mean_product)
        # Each row is taken for a channel of one image, so that affine maps are one pass each.
        straight = affine(b, reshape(b, dy, (1, rows * members, length)), _flat(b, slope))
        curved = affine(b, reshape(b, c, (1, rows, size)), _flat(b, along), _flat(b, mean))
        return b.op("Add", reshape(b, straight, shape), reshape(b, curved, shape))

    def scales() -> ir.Value:
        scaled = reshape(b, b.op("Mul", products, deviation), (batch, channels))
        return column_sums(b, scaled)

    return data, scales, lambda: column_sums(b, reshape(b, sums, (batch, channels)))


def _flat(b: Editor, value: ir.Value) -> ir.Value:
    """Return the elements of `value` in one row."""
    return reshape(b, value, (prod(shape_of(value)),))
