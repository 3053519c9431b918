"""The gradient of Det, by cofactors, which singular matrices have too."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import static_shape

from .rules import Point, dtype_of, reshape, transpose

_LARGEST = 32
"""A matrix of this size has a million elements in its minors."""


def determinant(b: Editor, at: Point) -> ir.Value:
    """dx[i, j] = dy * (-1)^(i + j) * the determinant of x without row i and column j."""
    size = shape_of(at.x)[-1]
    if size == 0:
        return at.x
    scale = reshape(b, at.dy, (*shape_of(at.dy), 1, 1))
    if size == 1:
        return scale
    places = np.arange(size)
    others = np.array([np.delete(places, place) for place in places])
    rows = b.op("Gather", at.x, others, axis=-2)
    minors = b.op("Gather", rows, others, axis=-1)  # [..., i, size - 1, j, size - 1]
    lead = rank_of(at.x) - 2
    order = (*range(lead), lead, lead + 2, lead + 1, lead + 3)
    signs = (-1.0) ** np.add.outer(places, places)
    cofactors = b.op(
        "Mul", b.op("Det", transpose(b, minors, order)), signs.astype(dtype_of(at.x).numpy())
    )
    return b.op("Mul", cofactors, scale)


def too_large(node: ir.Node) -> str | None:
    """Return why a Det has no gradient: its matrices are larger than 32 by 32."""
    shape = static_shape(node.inputs[0])
    if shape is None or shape[-1] <= _LARGEST:
        return None
    return f"its matrices are {shape[-1]} x {shape[-1]}, and {_LARGEST} x {_LARGEST} is the most"
