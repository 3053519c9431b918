"""Points between the elements of images: what is read there, and its gradients.

With the cell of a point u, its corners k, and f = u - floor(u) along each axis,

    y[c] = sum over k of w[k] x[c, at k],   w[k] = product over axes of f or 1 - f

so dx[c, at k] += w[k] dy[c], and du = sum over k of dw[k]/du sum over c of x[c, at k] dy[c].
Corners outside of an image are 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, Operand, shape_of

from .row_sums import sum_along
from .rules import cast, reshape


@dataclass(frozen=True)
class Neighbour:
    """One of the two neighbours of all points along one axis, or the nearest one.

    `place` int64 [M], inside the image; `weight` [M], 0 where it lies outside; `slope` [M], by how
    much the weight grows with what the points are computed from, None for the nearest.
    """

    place: ir.Value
    weight: ir.Value
    slope: ir.Value | None


def both_sides(
    b: Editor, u: ir.Value, size: int, slopes: tuple[Operand, Operand] = (-1.0, 1.0)
) -> list[Neighbour]:
    """Return the neighbours of places `u` [M] along an axis; `slopes` as those of `Neighbour`."""
    floor = b.op("Floor", u)
    behind = b.op("Sub", u, floor)
    return [
        neighbour(b, floor, size, b.op("Sub", 1.0, behind), slopes[0]),
        neighbour(b, b.op("Add", floor, 1.0), size, behind, slopes[1]),
    ]


def neighbour(
    b: Editor, place: ir.Value, size: int, weight: ir.Value | None, slope: Operand
) -> Neighbour:
    """Return the element at the whole number `place` [M], which counts where it is inside."""
    near = b.op("Clip", place, 0.0, float(size - 1))
    inside = cast(b, b.op("Equal", near, place), place)
    return Neighbour(
        b.op("Cast", near, to=ir.DataType.INT64),
        inside if weight is None else b.op("Mul", weight, inside),
        None if slope is None else b.op("Mul", inside, slope),
    )


@dataclass(frozen=True)
class Spots:
    """M points in `images` images of `sizes`, as many in each, and their neighbours by axis.

    Elements of the images are rows [images * elements, C], what is read at points [M, C].
    """

    b: Editor
    images: int
    sizes: tuple[int, ...]
    neighbours: Sequence[Sequence[Neighbour]]

    @cached_property
    def count(self) -> int:
        """M."""
        return prod(shape_of(self.neighbours[0][0].place))

    @cached_property
    def _corners(self) -> list[tuple[ir.Value, tuple[Neighbour, ...]]]:
        """Where among all rows of the images each corner lies, int64 [M], and its neighbours."""
        b, whole = self.b, prod(self.sizes)
        starts = np.repeat(np.arange(self.images) * whole, self.count // self.images)
        corners = []
        for corner in product(*self.neighbours):
            row, stride = b.constant(starts), whole
            for one, size in zip(corner, self.sizes, strict=True):
                stride //= size
                row = b.op("Add", row, b.op("Mul", one.place, stride))
            corners.append((row, corner))
        return corners

    def read(self, table: ir.Value) -> ir.Value:
        """y[c] = sum over k of w[k] x[c, at k], of `table` the rows of the images."""
        b = self.b
        parts = [
            b.op("Mul", b.op("Gather", table, row, axis=0), self._weight(corner))
            for row, corner in self._corners
        ]
        return b.op("Sum", *parts)

    def spread(self, rows: ir.Value) -> ir.Value:
        """dx[c, at k] += w[k] dy[c], of `rows` dy."""
        b = self.b
        places = [row for row, _ in self._corners]
        shares = [b.op("Mul", rows, self._weight(corner)) for _, corner in self._corners]
        total = self.images * prod(self.sizes)
        return sum_along(b, _joined(b, places), _joined(b, shares), 0, total)

    def slopes(self, table: ir.Value, rows: ir.Value) -> list[ir.Value]:
        """du [M] along each axis = sum over k of dw[k]/du sum over c of x[c, at k] dy[c]."""
        b = self.b
        sums: list[list[ir.Value]] = [[] for _ in self.sizes]
        for row, corner in self._corners:
            seen = b.op("Mul", b.op("Gather", table, row, axis=0), rows)
            influence = b.op("ReduceSum", seen, [1], keepdims=0)
            for axis, parts in enumerate(sums):
                factors = [
                    one.slope if other == axis else one.weight for other, one in enumerate(corner)
                ]
                present = [factor for factor in factors if factor is not None]
                parts.append(_product(b, [influence, *present]))
        return [b.op("Sum", *parts) for parts in sums]

    def _weight(self, corner: Sequence[Neighbour]) -> ir.Value:
        """Return w[k] [M, 1]."""
        weight = _product(self.b, [one.weight for one in corner])
        return reshape(self.b, weight, (self.count, 1))


def _product(b: Editor, factors: Sequence[ir.Value]) -> ir.Value:
    result, *rest = factors
    for factor in rest:
        result = b.op("Mul", result, factor)
    return result


def _joined(b: Editor, parts: Sequence[ir.Value]) -> ir.Value:
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=0)
