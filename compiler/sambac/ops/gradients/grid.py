"""Gradients of sampling an image at the points of a grid, and of a grid that a matrix makes.

A point has a coordinate for each spatial axis of the image, that of the last axis first. What is
read there, and its gradients, are those of `spots.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute, text_attribute
from sambac.ops.family import GradientRule, InputGradient

from .rules import Point, cast, dtype_of, incoming, operand, reshape, swap_last, unary
from .spots import Neighbour, Spots, both_sides, neighbour


def _unfolded(b: Editor, node: ir.Node, u: ir.Value, size: int) -> tuple[ir.Value, ir.Value | None]:
    """Return positions moved into an axis as the padding says, and the derivative of the move.

    None is a derivative of one.
    """
    padding = text_attribute(node, "padding_mode", "zeros")
    if padding == "zeros":
        return u, None
    slope = None
    if padding == "reflection":
        u, slope = _reflected(b, u, *_borders(node, size))
    above, below = b.op("Greater", u, 0.0), b.op("Less", u, float(size - 1))
    inside = cast(b, b.op("And", above, below), u)
    inside = inside if slope is None else b.op("Mul", inside, slope)
    return b.op("Clip", u, 0.0, float(size - 1)), inside


def _borders(node: ir.Node, size: int) -> tuple[float, float]:
    """Return where an axis begins and how long it is."""
    return (0.0, size - 1.0) if int_attribute(node, "align_corners") else (-0.5, float(size))


def _reflected(b: Editor, u: ir.Value, begin: float, span: float) -> tuple[ir.Value, ir.Value]:
    """Return `u` reflected at both borders until it is between them, and the sign of its move."""
    if span == 0:
        return b.op("Mul", u, 0.0), b.op("Mul", u, 0.0)
    from_begin = b.op("Sub", u, begin)
    distance = b.op("Abs", from_begin)
    turns = b.op("Floor", b.op("Div", distance, span))
    rest = b.op("Sub", distance, b.op("Mul", turns, span))
    odd = b.op("Sub", turns, b.op("Mul", b.op("Floor", b.op("Mul", turns, 0.5)), 2.0))
    back = b.op("Mul", odd, b.op("Sub", span, b.op("Mul", rest, 2.0)))
    sign = b.op("Mul", b.op("Sign", from_begin), b.op("Sub", 1.0, b.op("Mul", odd, 2.0)))
    return b.op("Add", b.op("Add", rest, back), begin), sign


@dataclass(frozen=True)
class _Samples:
    """The M = N * L points at which a node samples its image, and their gradient."""

    b: Editor
    node: ir.Node
    dy: ir.Value

    @property
    def _image(self) -> ir.Value:
        return operand(self.node, 0)

    @property
    def _grid(self) -> ir.Value:
        return operand(self.node, 1)

    @property
    def _sizes(self) -> tuple[int, ...]:
        """The spatial sizes of the image."""
        return shape_of(self._image)[2:]

    @property
    def _count(self) -> int:
        """M."""
        return prod(shape_of(self._grid)[:-1])

    def _rows(self, value: ir.Value) -> ir.Value:
        """Return [N * *, C] from [N, C, *]."""
        batch, channels, *sizes = shape_of(value)
        last = swap_last(self.b, reshape(self.b, value, (batch, channels, prod(sizes))))
        return reshape(self.b, last, (batch * prod(sizes), channels))

    @cached_property
    def _dy_rows(self) -> ir.Value:
        """dy [M, C]."""
        return self._rows(self.dy)

    @cached_property
    def _spots(self) -> Spots:
        """The points, and their neighbours along each axis of the image."""
        along = [self._along(axis) for axis in range(len(self._sizes))]
        return Spots(self.b, shape_of(self._image)[0], self._sizes, along)

    def _along(self, axis: int) -> list[Neighbour]:
        b, size = self.b, self._sizes[axis]
        component = np.asarray(len(self._sizes) - 1 - axis)
        half = (size - 1 if int_attribute(self.node, "align_corners") else size) / 2
        flat = reshape(b, b.op("Gather", self._grid, component, axis=-1), (self._count,))
        raw = b.op("Add", b.op("Mul", flat, half), (size - 1) / 2)
        nearest = text_attribute(self.node, "mode", "linear") == "nearest"
        u, moved = _unfolded(b, self.node, b.op("Round", raw) if nearest else raw, size)
        if nearest:
            return [neighbour(b, u, size, None, None)]
        if moved is None:
            return both_sides(b, u, size, (-half, half))
        return both_sides(b, u, size, (b.op("Mul", moved, -half), b.op("Mul", moved, half)))

    def data(self) -> ir.Value:
        """dx[c, at k] += w[k] dy[c]."""
        b, (batch, channels, *sizes) = self.b, shape_of(self._image)
        total = self._spots.spread(self._dy_rows)
        by_image = reshape(b, total, (batch, prod(sizes), channels))
        return reshape(b, swap_last(b, by_image), shape_of(self._image))

    def grid(self) -> ir.Value:
        """du = sum over k of dw[k]/du sum over c of x[c, at k] dy[c], the last axis first."""
        b = self.b
        slopes = self._spots.slopes(self._rows(self._image), self._dy_rows)
        columns = [reshape(b, slope, (self._count, 1)) for slope in reversed(slopes)]
        return reshape(b, b.op("Concat", *columns, axis=1), shape_of(self._grid))


def _sampled(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx and du as above; the nearest element does not change with the grid."""
    samples = _Samples(b, node, incoming(node, grads))
    nearest = text_attribute(node, "mode", "linear") == "nearest"
    return (samples.data, None if nearest else samples.grid)


def no_sampling(node: ir.Node) -> str | None:
    """Return why this GridSample has no gradient, or None if it has."""
    if text_attribute(node, "mode", "linear").endswith("cubic"):
        return "cubic interpolation at a grid has no gradient here; use linear"
    return None


def _affine_grid(b: Editor, at: Point) -> ir.Value:
    """With y = theta p for each place p: dtheta = the sum of dy p^T over all places."""
    batch, *sizes, dims = shape_of(at.y)
    places = _places(sizes, aligned=int_attribute(at.node, "align_corners") != 0)
    dy = reshape(b, at.dy, (batch, prod(sizes), dims))
    return b.op("MatMul", swap_last(b, dy), places.astype(dtype_of(at.y).numpy()))


def _places(sizes: list[int], *, aligned: bool) -> np.ndarray:
    """Return `[count, dims + 1]`: of each place its coordinates, the last axis first, and a 1.

    Coordinates go from -1 to 1: from the middle of the first element to that of the last if
    `aligned` (a single element lies at 1, as the kernel has it), else from edge to edge.
    """
    axes = [_coordinates(size, aligned=aligned) for size in sizes]
    grid = np.meshgrid(*axes, indexing="ij")
    return np.stack([*reversed(grid), np.ones(sizes)], axis=-1).reshape(-1, len(sizes) + 1)


def _coordinates(size: int, *, aligned: bool) -> np.ndarray:
    if aligned:
        return np.linspace(-1, 1, size) if size > 1 else np.ones(1)
    return (2 * np.arange(size) + 1) / size - 1


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "AffineGrid": unary(_affine_grid),
    "GridSample": _sampled,
    "com.microsoft.GridSample": _sampled,
})  # fmt: skip
