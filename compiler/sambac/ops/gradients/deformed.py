"""Gradients of convolutions whose taps read at offsets that are computed.

Tap t of the window at o reads the image at the point u = at(o, t) + offset(o, t) (`spots.py`), and
what it reads may be multiplied by a mask. With s the reads of all taps, and columns m = s mask,

    y = W m + B,   dW = dy m^T,   dm = W^T dy,   dmask = sum over c of s dm,   ds = dm mask

and dx and d offset are those of reading s at u. Channels share offsets and a mask in groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at, int_attribute
from sambac.ops.family import InputGradient

from .rules import channel_sums, dtype_of, incoming, operand, reshape, swap_last
from .spots import Spots, both_sides
from .windows import Window, window_of


@dataclass(frozen=True)
class _Deformed:
    """A node, and the gradient of its result.

    An image of it is one batch element's group of C channels that share offsets. Each has
    taps * positions points, and there are M in all.
    """

    b: Editor
    node: ir.Node
    dy: ir.Value

    @cached_property
    def _window(self) -> Window:
        return window_of(self.node)

    @property
    def _images(self) -> int:
        return shape_of(operand(self.node, 0))[0] * int_attribute(self.node, "offset_group", 1)

    @property
    def _channels(self) -> int:
        """C."""
        return prod(shape_of(operand(self.node, 0))[:2]) // self._images

    @property
    def _points(self) -> int:
        """The points of one image."""
        return self._window.taps * self._window.count

    def _rows(self, value: ir.Value, elements: int) -> ir.Value:
        """Return [images * elements, C] from anything of [images, C, elements]."""
        by_channel = reshape(self.b, value, (self._images, self._channels, elements))
        last = swap_last(self.b, by_channel)
        return reshape(self.b, last, (self._images * elements, self._channels))

    def _from_rows(self, rows: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Undo `_rows`."""
        elements = shape_of(rows)[0] // self._images
        by_element = reshape(self.b, rows, (self._images, elements, self._channels))
        return reshape(self.b, swap_last(self.b, by_element), shape)

    @cached_property
    def _table(self) -> ir.Value:
        return self._rows(operand(self.node, 0), prod(self._window.image))

    @cached_property
    def _spots(self) -> Spots:
        b, window, offset = self.b, self._window, operand(self.node, 2)
        axes = len(window.image)
        offsets = reshape(b, offset, (self._images, window.taps, axes, window.count))
        along = []
        for axis, size in enumerate(window.image):
            moves = b.op("Gather", offsets, np.asarray(axis), axis=2)
            places = b.op("Add", moves, _starts(window, axis).astype(dtype_of(offset).numpy()))
            along.append(both_sides(b, reshape(b, places, (self._images * self._points,)), size))
        return Spots(b, self._images, window.image, along)

    @cached_property
    def _reads(self) -> ir.Value:
        """s [M, C]."""
        return self._spots.read(self._table)

    def _masked(self, rows: ir.Value) -> ir.Value:
        """Return `rows` [M, C] times the mask."""
        mask = input_at(self.node, 4)
        if mask is None:
            return rows
        return self.b.op("Mul", rows, reshape(self.b, mask, (self._images * self._points, 1)))

    @property
    def _columns_shape(self) -> tuple[int, ...]:
        """The batch, groups of the convolution, its elements in a window, and positions."""
        batch, channels = shape_of(operand(self.node, 0))[:2]
        group = int_attribute(self.node, "group", 1)
        return batch, group, channels // group * self._window.taps, self._window.count

    @cached_property
    def _dy_by_group(self) -> ir.Value:
        batch, group, _, count = self._columns_shape
        maps = shape_of(self.dy)[1] // group
        return reshape(self.b, self.dy, (batch, group, maps, count))

    @cached_property
    def _d_columns(self) -> ir.Value:
        """dm [M, C]."""
        b, weight = self.b, operand(self.node, 1)
        _, group, inner, _ = self._columns_shape
        by_group = reshape(b, weight, (group, shape_of(weight)[0] // group, inner))
        return self._rows(b.op("MatMul", swap_last(b, by_group), self._dy_by_group), self._points)

    @cached_property
    def _d_reads(self) -> ir.Value:
        """ds [M, C]."""
        return self._masked(self._d_columns)

    def data(self) -> ir.Value:
        """dx: ds spread over the corners of its points."""
        return self._from_rows(self._spots.spread(self._d_reads), shape_of(operand(self.node, 0)))

    def weight(self) -> ir.Value:
        """dW = dy m^T."""
        b, columns = self.b, self._from_rows(self._masked(self._reads), self._columns_shape)
        by_batch = b.op("MatMul", self._dy_by_group, swap_last(b, columns))
        return reshape(
            b, b.op("ReduceSum", by_batch, [0], keepdims=0), shape_of(operand(self.node, 1))
        )

    def offset(self) -> ir.Value:
        """d offset: how reads change with their points, of the first axis first."""
        b, window = self.b, self._window
        shape = (self._images, window.taps, 1, window.count)
        slopes = self._spots.slopes(self._table, self._d_reads)
        joined = b.op("Concat", *(reshape(b, slope, shape) for slope in slopes), axis=2)
        return reshape(b, joined, shape_of(operand(self.node, 2)))

    def mask(self) -> ir.Value:
        """dmask = sum over c of s dm."""
        b = self.b
        total = b.op("ReduceSum", b.op("Mul", self._reads, self._d_columns), [1], keepdims=0)
        return reshape(b, total, shape_of(operand(self.node, 4)))


def _starts(window: Window, axis: int) -> np.ndarray:
    """Return [taps, count]: where along `axis` each tap of each window lies without offsets."""
    places = window.places(axis) - window.begins[axis]
    shape = [1] * (2 * len(window.kernel))
    shape[axis], shape[axis + len(window.kernel)] = places.shape
    whole = (*window.kernel, *window.positions)
    return np.broadcast_to(places.reshape(shape), whole).reshape(window.taps, window.count)


def deform_conv(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """The gradients above, of x, W, offset, B and mask."""
    dy = incoming(node, grads)
    at = _Deformed(b, node, dy)
    rules = (at.data, at.weight, at.offset, lambda: channel_sums(b, dy), at.mask)
    return rules[: len(node.inputs)]
