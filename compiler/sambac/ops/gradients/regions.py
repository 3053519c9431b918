"""Gradients of pooling regions of images: what the bins of a region read on average.

A bin has samples in rows and columns, and each reads between the elements of the image around it.
So along each axis a region has a matrix: A [bins, elements] along the rows, B along the columns.
With n the image of region r

    y[r, c] = A[r] x[n, c] B[r]^T,   dx[n, c] = the sum of A[r]^T dy[r, c] B[r] over its regions

Samples more than one element outside of an image read 0, nearer ones what its border holds. As in
PyTorch, no gradient flows to where the regions lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, int_attribute, text_attribute
from sambac.ops.family import GradientRule

from .rules import Point, cast, dtype_of, number, operand, reshape, transpose, unary

_READING = 6
"""So many samples in a row hold all of a bin that read one element, if their number follows from
the size of the bin: they are more than half an element apart, and read within one on each side."""


@dataclass(frozen=True)
class _RegionAxis:
    """One axis of R regions of an image.

    `start` and `extent` [R, 1, 1, 1] are in elements of the image, of which there are `size`.
    `samples` of a bin is 0 where their number follows from its size.
    """

    b: Editor
    start: ir.Value
    extent: ir.Value
    bins: int
    size: int
    samples: int

    def matrix(self) -> ir.Value:
        """Return [R, bins, size]: how much of each element is in the mean of each bin."""
        b, regions = self.b, shape_of(self.start)[0]
        places, exists = self._places
        near = b.op("Clip", places, 0.0, float(self.size - 1))
        weights = b.op("Relu", b.op("Sub", 1.0, b.op("Abs", b.op("Sub", near, self._elements))))
        below = b.op("LessOrEqual", places, float(self.size))
        inside = b.op("And", b.op("GreaterOrEqual", places, -1.0), below)
        reads = inside if exists is None else b.op("And", inside, exists)
        read = b.op("Where", reads, weights, number(b, 0.0, weights))
        total = b.op("ReduceSum", read, [3], keepdims=0)
        if self.samples:
            return b.op("Mul", total, 1 / self.samples)
        return b.op("Div", total, reshape(b, self._count, (regions, 1, 1)))

    @cached_property
    def _places(self) -> tuple[ir.Value, ir.Value | None]:
        """Where samples lie [R, bins, size or 1, samples], and which exist if not all do."""
        b = self.b
        begin = b.op("Add", self.start, b.op("Mul", self._bin, self._steps(self.bins, 1)))
        if self.samples:
            ahead = b.op("Mul", self._bin, self._steps(self.samples, 3) + 0.5)
            return b.op("Add", begin, b.op("Div", ahead, float(self.samples))), None
        # The first that may read each element, by its order in the bin. An only one is the first.
        gap = b.op("Max", b.op("Div", self._bin, self._count), 0.5)
        distance = b.op("Div", b.op("Sub", self._elements - 1, begin), gap)
        first = b.op("Max", b.op("Floor", b.op("Sub", distance, 0.5)), 0.0)
        order = b.op("Add", first, self._steps(_READING, 3))
        ahead = b.op("Div", b.op("Mul", b.op("Add", order, 0.5), self._bin), self._count)
        # Bins of no size, or less, have none.
        exists = b.op("And", b.op("Less", order, self._count), b.op("Greater", self._bin, 0.0))
        return b.op("Add", begin, ahead), exists

    @cached_property
    def _bin(self) -> ir.Value:
        """The size of a bin [R, 1, 1, 1]."""
        return self.b.op("Div", self.extent, float(self.bins))

    @cached_property
    def _count(self) -> ir.Value:
        """The number of samples of a bin [R, 1, 1, 1] that follows from its size, 1 or more."""
        return self.b.op("Max", self.b.op("Ceil", self._bin), 1.0)

    @property
    def _elements(self) -> np.ndarray:
        return self._steps(self.size, 2)

    def _steps(self, count: int, axis: int) -> np.ndarray:
        """Return 0, 1 ... along one of four axes."""
        shape = [count if index == axis else 1 for index in range(4)]
        return np.arange(count, dtype=dtype_of(self.start).numpy()).reshape(shape)


def _axis(b: Editor, node: ir.Node, axis: int) -> _RegionAxis:
    """Return the axis 0 (rows) or 1 (columns) of the regions of `node`."""
    rois = operand(node, 1)
    scale = float_attribute(node, "spatial_scale", 1.0)
    centred = text_attribute(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel"
    ends = []
    for column in (1 - axis, 3 - axis):
        flat = b.op("Gather", rois, np.asarray([column]), axis=1)
        scaled = b.op("Mul", reshape(b, flat, (shape_of(rois)[0], 1, 1, 1)), scale)
        ends.append(b.op("Sub", scaled, 0.5) if centred else scaled)
    extent = b.op("Sub", ends[1], ends[0])
    return _RegionAxis(
        b,
        ends[0],
        extent if centred else b.op("Max", extent, 1.0),
        shape_of(node.outputs[0])[2 + axis],
        shape_of(operand(node, 0))[2 + axis],
        max(int_attribute(node, "sampling_ratio"), 0),
    )


def _pooled(b: Editor, at: Point) -> ir.Value:
    """Along columns by region, then along the rows of all regions of an image at once."""
    regions, channels, high, wide = shape_of(at.dy)
    images, _, rows, columns = shape_of(at.x)
    along_rows, along_columns = (_axis(b, at.node, axis).matrix() for axis in (0, 1))
    lines = reshape(b, at.dy, (regions, channels * high, wide))
    spread = reshape(b, b.op("MatMul", lines, along_columns), (regions, channels, high, columns))
    stacked = reshape(b, transpose(b, spread, (0, 2, 1, 3)), (regions * high, channels * columns))
    of_image = b.op("Equal", operand(at.node, 2), np.arange(images)[:, None])
    mask = reshape(b, cast(b, of_image, at.dy), (images, 1, regions, 1))
    shares = b.op("Mul", mask, transpose(b, along_rows, (2, 0, 1)))
    by_row = b.op("MatMul", reshape(b, shares, (images, rows, regions * high)), stacked)
    return transpose(b, reshape(b, by_row, (images, rows, channels, columns)), (0, 2, 1, 3))


def no_regions(node: ir.Node) -> str | None:
    """Return why this RoiAlign has no gradient, or None if it has."""
    if text_attribute(node, "mode", "avg") != "avg":
        return "the largest sample of a bin has no gradient here; take their mean"
    return None


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({"RoiAlign": unary(_pooled)})
