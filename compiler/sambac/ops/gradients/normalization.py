"""Gradients of normalisations over rows: of layers.

With the centred input c = x - mean, r = 1 / deviation and g = scale * dy, the gradient of a row of
D elements is dx = r (g - sum(g) / D - c r^2 sum(g c) / D), and dscale the sum of dy c r over rows.
Statistics of LayerNormalization are those that the operator has made. Where they are results too,
their gradients add dmean / D and -dr c r^3 / D.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, input_at, int_attribute
from sambac.ops.family import InputGradient

from .rules import cast, column_sums, operand, reshape
from .statistics import reciprocal_size

_EPSILON = 1e-5

Gradients = Sequence[InputGradient | None]


def layer_normalization(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = scale c r + bias, a row being the axes from `axis` on: see the top of this file."""
    dy = grads[0] if grads[0] is not None else b.zeros(node.outputs[0])
    x, scale = operand(node, 0), operand(node, 1)
    count, size = _row_shape(node)
    mean, deviation = (
        reshape(b, cast(b, b.add_output(node, index), x), (count, 1)) for index in (1, 2)
    )
    c = b.op("Sub", reshape(b, x, (count, size)), mean)
    rows = NormalizedRows(b, c, deviation, dy, scale, centred=True)
    bias = input_at(node, 2)
    dmean, droot = (_as(b, x, grad) for grad in (*grads[1:], None, None)[:2])

    def data() -> ir.Value:
        return rows.data_behind(dmean, droot)

    if bias is None:
        return (data, rows.scales)
    return (data, rows.scales, lambda: rows.biases(bias))


def rms_normalization(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = scale x r with r = (mean of x^2 + epsilon)^(-1/2): dx = r (g - x r^2 sum(g x) / D).

    SimplifiedLayerNormalization has r as its second result.
    """
    dy = grads[0] if grads[0] is not None else b.zeros(node.outputs[0])
    scale = operand(node, 1)
    flat = reshape(b, operand(node, 0), _row_shape(node))
    deviation = reciprocal_size(b, flat, float_attribute(node, "epsilon", _EPSILON))
    rows = NormalizedRows(b, flat, deviation, dy, scale, centred=False)
    root = _as(b, operand(node, 0), grads[1] if len(grads) > 1 else None)
    return (lambda: rows.data_behind(None, root), rows.scales)


def _as(b: Editor, x: ir.Value, gradient: ir.Value | None) -> ir.Value | None:
    """Return the gradient of a statistic, which may be wider than x, in the type of x."""
    return None if gradient is None else cast(b, gradient, x)


def _row_shape(node: ir.Node) -> tuple[int, int]:
    """Return how many rows a node with an attribute `axis` normalises, and their size."""
    shape = shape_of(operand(node, 0))
    axis = int_attribute(node, "axis", -1) % len(shape)
    return prod(shape[:axis]), prod(shape[axis:])


@dataclass(frozen=True)
class NormalizedRows:
    """Rows c [R, D], the factors r [R, 1] that normalise them, and the gradient of the result.

    `dy` has the shape of the input; `scale` is broadcast to it. `centred`: whether means were
    subtracted.
    """

    b: Editor
    c: ir.Value
    deviation: ir.Value
    dy: ir.Value
    scale: ir.Value
    centred: bool

    @property
    def _flat(self) -> ir.Value:
        """dy [R, D]."""
        return reshape(self.b, self.dy, shape_of(self.c))

    def data(self) -> ir.Value:
        """dx = (g - mean(g) - c (r^2 mean(g c))) r."""
        b = self.b
        g, mean, mean_product = self._scaled()
        squared = b.op("Mul", self.deviation, self.deviation)
        part = b.op("Mul", self.c, b.op("Mul", squared, mean_product))
        rest = b.op("Sub", g, part)
        if self.centred:
            rest = b.op("Sub", rest, mean)
        return reshape(b, b.op("Mul", rest, self.deviation), shape_of(self.dy))

    def data_behind(self, mean: ir.Value | None, deviation: ir.Value | None) -> ir.Value:
        """Return dx with what the gradients of the mean and of r, where there are any, add."""
        b, (count, size) = self.b, shape_of(self.c)
        total = self.data()
        if mean is not None:
            each = b.op("Mul", reshape(b, mean, (count, 1)), 1 / size)
            total = b.op("Add", total, self._shaped(b.op("Expand", each, (count, size))))
        if deviation is not None:
            cube = b.op("Mul", self.deviation, b.op("Mul", self.deviation, self.deviation))
            each = b.op("Mul", b.op("Mul", reshape(b, deviation, (count, 1)), cube), -1 / size)
            total = b.op("Add", total, self._shaped(b.op("Mul", self.c, each)))
        return total

    def _shaped(self, rows: ir.Value) -> ir.Value:
        return reshape(self.b, rows, shape_of(self.dy))

    def _scaled(self) -> tuple[ir.Value, ir.Value, ir.Value]:
        """Return g [R, D], and mean(g) and mean(g c) [R, 1] of each row."""
        b, (_, size) = self.b, shape_of(self.c)
        flat = self._flat
        if not self._is_row(self.scale):
            g = reshape(b, b.op("Mul", self.dy, self.scale), shape_of(self.c))
            products = b.op("Mul", g, self.c)
            mean, mean_product = (
                b.op("ReduceMean", item, [-1], keepdims=1) for item in (g, products)
            )
            return g, mean, mean_product
        row = reshape(b, self.scale, (size,))
        weights = reshape(b, b.op("Mul", row, 1 / size), (size, 1))
        products = b.op("Mul", flat, self.c)
        g = b.op("Mul", flat, row)
        return g, b.op("MatMul", flat, weights), b.op("MatMul", products, weights)

    def scales(self) -> ir.Value:
        """dscale = sum of dy c r over the rows, or, where it is no row, dy c r."""
        b, (count, _) = self.b, shape_of(self.c)
        products = b.op("Mul", self._flat, self.c)
        if self._is_row(self.scale):
            total = b.op("MatMul", reshape(b, self.deviation, (1, count)), products)
            return reshape(b, total, shape_of(self.scale))
        return reshape(b, b.op("Mul", products, self.deviation), shape_of(self.dy))

    def biases(self, bias: ir.Value) -> ir.Value:
        """dbias = sum of dy over the rows, or, where it is no row, dy."""
        if not self._is_row(bias):
            return self.dy
        return reshape(self.b, column_sums(self.b, self._flat), shape_of(bias))

    def _is_row(self, parameter: ir.Value) -> bool:
        """Whether a parameter has one number for each element of a row."""
        shape, whole = shape_of(parameter), shape_of(self.dy)
        while shape and shape[0] == 1:
            shape = shape[1:]
        return prod(shape) == shape_of(self.c)[1] and shape == whole[len(whole) - len(shape) :]
