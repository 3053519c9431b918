"""The gradient of AffineGrid, which maps the places of an image by a matrix."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.node_facts import int_attribute

from .rules import Point, dtype_of, unary
from .shaping import reshape, swap_last


def affine_grid(b: Editor, at: Point) -> ir.Value:
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


GRADIENTS = {"AffineGrid": unary(affine_grid)}
