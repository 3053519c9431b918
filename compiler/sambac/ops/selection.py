"""Sorting and searching: comparisons, about as many as a sort makes."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at

from .family import Family, dim, each, elements
from .gradients import selection as selection_gradients


def _sort(node: ir.Node) -> int:
    """N * log2(n) comparisons, n the number of elements."""
    count = elements(input_at(node, 0))
    return count * max(count - 1, 0).bit_length()


def _pairs(node: ir.Node) -> int:
    """16 operations for the overlap of each pair of boxes, per batch."""
    boxes = input_at(node, 0)
    return 16 * dim(boxes, 0) * dim(boxes, 1) ** 2


FAMILY = Family(
    "selection",
    {
        **each("TopK Unique", _sort),
        **each("NonMaxSuppression", _pairs),
        **each("Unique", _sort, "com.microsoft"),
    },
    gradients=selection_gradients.GRADIENTS,
    constant=frozenset({"NonMaxSuppression"}),
    undifferentiable={"Unique": "how many values it finds is known only at run time"},
)
