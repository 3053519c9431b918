"""Gradients of resampling, which is linear: each axis is multiplied with a matrix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, Operand, shape_of
from sambac.graph.nodes import input_at, text_attribute
from sambac.ops.family import GradientRule

from .rules import Point, constant_of, dtype_of, integers_attribute, operand, reshape, unary

_ALIGNED = frozenset({
    ("asymmetric", "floor"),
    ("half_pixel", "round_prefer_floor"),
    ("half_pixel", "round_prefer_ceil"),
})  # fmt: skip
"""The ways of taking the nearest element that repeat each one k times, for a whole scale k."""

_SPATIAL = range(3, 6)
"""Ranks of [N, C, D...] that pooling takes."""

# Of these, only the values change from axis to axis.
_METHOD = (
    "antialias", "coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode",
    "nearest_mode",
)  # fmt: skip


@dataclass(frozen=True)
class _Axis:
    """How one axis is resized: by a scale or to a size, from a part of it."""

    index: int
    before: int
    after: int
    scale: float | None
    region: tuple[float, float] | None

    @property
    def kept(self) -> bool:
        """Whether it is left as it is."""
        return self.before == self.after and self.scale in (None, 1) and self.region is None


def _resized(b: Editor, at: Point) -> ir.Value:
    """dX = M^T dY along each resized axis, M[i, j] the part of input j in output i.

    Where elements are only repeated it is the sum of the repetitions: their mean, multiplied.
    """
    axes = _axes(at.node)
    repetitions = _repetitions(at.node, axes)
    if repetitions:
        pooled = b.op("AveragePool", at.dy, kernel_shape=repetitions, strides=repetitions)
        return b.op("Mul", pooled, float(prod(repetitions)))
    gradient = at.dy
    for axis in axes:
        if not axis.kept:
            gradient = _along(b, gradient, axis, _transposed_matrix(b, at.node, axis))
    return gradient


def _along(b: Editor, gradient: ir.Value, axis: _Axis, matrix: ir.Value) -> ir.Value:
    shape = shape_of(gradient)
    before, after = prod(shape[: axis.index]), prod(shape[axis.index + 1 :])
    stacked = reshape(b, gradient, (before, axis.after, after))
    wanted = (*shape[: axis.index], axis.before, *shape[axis.index + 1 :])
    return reshape(b, b.op("MatMul", matrix, stacked), wanted)


def _transposed_matrix(b: Editor, node: ir.Node, axis: _Axis) -> ir.Value:
    """Return [inputs, outputs] of one axis: the operator itself applied to each unit vector."""
    units = np.eye(axis.before, dtype=dtype_of(operand(node, 0)).numpy())[None, None]
    region: Operand = None
    if axis.region is not None:
        start, stop = axis.region
        region = np.asarray([0, 0, 0, start, 1, 1, 1, stop], units.dtype)
    size: tuple[Operand, Operand] = (None, [1, 1, axis.before, axis.after])
    if axis.scale is not None:
        size = (np.asarray([1, 1, 1, axis.scale], np.float32), None)
    found = [node.attributes.get(name) for name in _METHOD]
    method = {attribute.name: attribute.value for attribute in found if attribute is not None}
    made = b.op("Resize", units, region, *size, **method)
    return reshape(b, made, (axis.before, axis.after))


def _axes(node: ir.Node) -> list[_Axis]:
    """Return what happens to each axis."""
    before, after = shape_of(operand(node, 0)), shape_of(node.outputs[0])
    rank = len(before)
    chosen = [axis % rank for axis in integers_attribute(node, "axes") or range(rank)]
    scales = constant_of(input_at(node, 2))
    by_axis: dict[int, float] = {}
    if scales is not None and scales.size:
        by_axis = {axis: float(scale) for axis, scale in zip(chosen, scales, strict=True)}
    regions = _regions(node, chosen)
    given = scales is not None and scales.size > 0
    return [
        _Axis(
            axis,
            before[axis],
            after[axis],
            by_axis.get(axis, 1.0) if given else None,
            regions.get(axis),
        )
        for axis in range(rank)
    ]


def _regions(node: ir.Node, chosen: list[int]) -> dict[int, tuple[float, float]]:
    """Return the parts of the axes that are resized, where only parts are."""
    region = constant_of(input_at(node, 1))
    if _placement(node) != "tf_crop_and_resize" or region is None:
        return {}
    starts, stops = region.reshape(2, -1)
    return {
        axis: (float(start), float(stop))
        for axis, start, stop in zip(chosen, starts, stops, strict=True)
    }


def _repetitions(node: ir.Node, axes: list[_Axis]) -> list[int]:
    """Return how often elements are repeated along each axis but two; empty if that is not all."""
    nearest = (_placement(node), text_attribute(node, "nearest_mode", "round_prefer_floor"))
    plain = text_attribute(node, "mode", "nearest") == "nearest" and nearest in _ALIGNED
    if not plain or len(axes) not in _SPATIAL or not all(axis.kept for axis in axes[:2]):
        return []
    times = [axis.after // max(axis.before, 1) for axis in axes[2:]]
    whole = all(
        axis.after == axis.before * count and axis.scale in (None, count)
        for axis, count in zip(axes[2:], times, strict=True)
    )
    return times if whole else []


def _placement(node: ir.Node) -> str:
    return text_attribute(node, "coordinate_transformation_mode", "half_pixel")


def no_resizing(node: ir.Node) -> str | None:
    """Return why this Resize has no gradient, or None if it has."""
    if text_attribute(node, "keep_aspect_ratio_policy", "stretch") != "stretch":
        return "its scale depends on all axes; give it the scales themselves"
    return None


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({"Resize": unary(_resized)})
