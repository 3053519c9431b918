"""Gradients of operators that sort and search."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute
from sambac.ops.family import GradientRule

from .rules import Point, unary


def _top(b: Editor, at: Point) -> ir.Value:
    """dx = dy where x is among the first k, else 0; no place comes twice."""
    places = b.add_output(at.node, 1)
    axis = int_attribute(at.node, "axis", -1)
    return b.op("ScatterElements", b.zeros(at.x), places, at.dy, axis=axis)


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({"TopK": unary(_top)})
