"""Gradients of normalisations over groups of channels of an image, or over single channels.

With the centred input c = x - mean, r = 1 / deviation, z = c r and g = scale * dy, the gradient of
a group of D elements is dx = r (g - sum(g) / D - z sum(g z) / D), and dscale and dbias of a channel
are the sums of dy z and of dy over it. All are made of the sums of dy and dy z over each channel of
each image, which are small. A node may have z and r as further outputs (`keep_statistics.py`). Else
they are taken anew, in two passes: the mean, then the mean square of what is centred.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    shape = shape_of(operand(node, 0))
    of = _GroupSizes(shape[0], shape[1], groups, prod(shape[2:]))
    normal, factors = _normal(b, node, of)
    dy2, normal2 = (reshape(b, value, (of.parts, of.length)) for value in (dy, normal))
    sums = b.op("ReduceSum", dy2, [1], keepdims=0)
    products = b.op("ReduceSum", b.op("Mul", dy2, normal2), [1], keepdims=0)

    def data() -> ir.Value:
        apart = (of.rows, of.members)
        weights = b.op("Tile", reshape(b, operand(node, 1), (groups, of.members)), [of.batch, 1])
        slope = b.op("Mul", weights, factors)
        offset, along = (
            b.op("ReduceSum", b.op("Mul", slope, reshape(b, item, apart)), [-1], keepdims=1)
            for item in (sums, products)
        )
        offset, along = (_flat(b, b.op("Mul", item, -1 / of.size)) for item in (offset, along))
        # Each row is taken for a channel of one image, so that affine maps are one pass each.
        curved = affine(b, reshape(b, normal, (1, of.rows, of.size)), along, offset)
        curved2 = reshape(b, curved, (of.parts, of.length))
        straight = b.op("Mul", dy2, reshape(b, slope, (of.parts, 1)))
        return reshape(b, b.op("Add", curved2, straight), shape)

    def by_channel(total: ir.Value) -> ir.Value:
        return column_sums(b, reshape(b, total, (of.batch, of.channels)))

    return data, lambda: by_channel(products), lambda: by_channel(sums)


@dataclass(frozen=True)
class _GroupSizes:
    """How an image is divided: into rows, which are groups of channels, and these into parts."""

    batch: int
    channels: int
    groups: int
    length: int

    @property
    def members(self) -> int:
        """Channels in a group."""
        return self.channels // self.groups

    @property
    def rows(self) -> int:
        """Groups of all images."""
        return self.batch * self.groups

    @property
    def parts(self) -> int:
        """Channels of all images."""
        return self.batch * self.channels

    @property
    def size(self) -> int:
        """Elements in a group."""
        return self.members * self.length


def _normal(b: Editor, node: ir.Node, of: _GroupSizes) -> tuple[ir.Value, ir.Value]:
    """Return c r [rows, size] and r [rows, 1], taken anew where the node has not kept them."""
    if len(node.outputs) > 1:
        return node.outputs[1], node.outputs[2]
    c = centre(b, b.op("Reshape", operand(node, 0), [of.rows, of.size]))
    factors = reciprocal_size(b, c, float_attribute(node, "epsilon", _EPSILON))
    return b.op("Mul", c, factors), factors


def _flat(b: Editor, value: ir.Value) -> ir.Value:
    """Return the elements of `value` in one row."""
    return reshape(b, value, (prod(shape_of(value)),))
