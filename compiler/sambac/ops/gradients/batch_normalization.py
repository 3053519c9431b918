"""Gradients of BatchNormalization, in training and in inference.

Both work on sums for each channel, and apply what follows to the image as a few affine maps of
channels. The input is centred before products with it are summed: without that, digits are lost
where the mean of a channel is much larger than its deviation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.lanes import SHORTEST_GATED_ROW
from sambac.graph.nodes import float_attribute, int_attribute
from sambac.ops.family import InputGradient

from .rules import cast, channel_sums, operand, reshape
from .statistics import affine, reciprocal_root

_EPSILON = 1e-5


def batch_normalization(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = scale * (x - m) * r + bias with r = (v + epsilon)^(-1/2).

    With q = sum of dy * (x - m) and t = sum of dy over a channel of n elements: dscale = q r and
    dbias = t; in inference dx = scale r dy, dm = -scale r t, dv = -scale r^3 q / 2; in training, m
    and v being those of x, dx = scale r (dy - t / n - (x - m) r^2 q / n). Running statistics get
    no gradient.
    """
    dy = grads[0]
    if dy is None:
        return ()
    parts = _Parts(b, node, dy)
    if int_attribute(node, "training_mode"):
        return (parts.data_in_training, parts.scale, parts.bias)
    return (parts.data, parts.scale, parts.bias, parts.mean, parts.variance)


@dataclass(frozen=True)
class _Parts:
    """What the gradients of one node share; each is made when first needed."""

    b: Editor
    node: ir.Node
    dy: ir.Value

    @cached_property
    def _statistics(self) -> tuple[ir.Value, ir.Value]:
        """Mean and biased variance of each channel, [C] each, of the type of x."""
        return _statistics(self.b, self.node)

    @cached_property
    def _deviation(self) -> ir.Value:
        """r [C]."""
        epsilon = float_attribute(self.node, "epsilon", _EPSILON)
        return reciprocal_root(self.b, self._statistics[1], epsilon)

    @cached_property
    def _slope(self) -> ir.Value:
        """scale * r [C]."""
        return self.b.op("Mul", self._input(1), self._deviation)

    @cached_property
    def _centred(self) -> ir.Value:
        """x - m."""
        return affine(self.b, operand(self.node, 0), shift=self._statistics[0])

    @cached_property
    def _products(self) -> ir.Value:
        """q [C]."""
        return channel_sums(self.b, self.b.op("Mul", self.dy, self._centred))

    @cached_property
    def _sums(self) -> ir.Value:
        """t [C]."""
        return channel_sums(self.b, self.dy)

    def data(self) -> ir.Value:
        return affine(self.b, self.dy, self._slope)

    def data_in_training(self) -> ir.Value:
        b, shape = self.b, shape_of(operand(self.node, 0))
        share = b.op("Mul", self._slope, -1 / (prod(shape) // shape[1]))
        squared = b.op("Mul", self._deviation, self._deviation)
        along = b.op("Mul", share, b.op("Mul", squared, self._products))
        offset = b.op("Mul", share, self._sums)
        curved = affine(b, self._centred, along, offset)
        return b.op("Add", curved, self._scaled())

    def _scaled(self) -> ir.Value:
        """dy * scale * r, by rows where an operator adds scaled rows."""
        b, (batch, channels, *sizes) = self.b, shape_of(self.dy)
        if prod(sizes) < SHORTEST_GATED_ROW:
            return affine(b, self.dy, self._slope)
        rows = reshape(b, self.dy, (batch * channels, prod(sizes)))
        slopes = b.op("Tile", reshape(b, self._slope, (channels, 1)), [batch, 1])
        return reshape(b, b.op("Mul", rows, slopes), shape_of(self.dy))

    def scale(self) -> ir.Value:
        return self._like_input(1, self.b.op("Mul", self._products, self._deviation))

    def bias(self) -> ir.Value:
        return self._like_input(2, self._sums)

    def mean(self) -> ir.Value:
        return self._like_input(3, self.b.op("Neg", self.b.op("Mul", self._slope, self._sums)))

    def variance(self) -> ir.Value:
        b = self.b
        squared = b.op("Mul", self._deviation, self._deviation)
        rest = b.op("Mul", squared, b.op("Mul", self._slope, self._products))
        return self._like_input(4, b.op("Mul", rest, -0.5))

    def _input(self, index: int) -> ir.Value:
        """Return a parameter in the type of x."""
        return cast(self.b, operand(self.node, index), self.dy)

    def _like_input(self, index: int, gradient: ir.Value) -> ir.Value:
        return cast(self.b, gradient, operand(self.node, index))


def _statistics(b: Editor, node: ir.Node) -> tuple[ir.Value, ir.Value]:
    """Return mean and biased variance, [C] each, by which `node` normalises, in the type of x.

    In training they are outputs 1 and 2 of the operator, if it adds nothing of the old ones.
    """
    x = operand(node, 0)
    if not int_attribute(node, "training_mode"):
        mean, variance = operand(node, 3), operand(node, 4)
    elif float_attribute(node, "momentum", 0.9) == 0:
        mean, variance = b.add_output(node, 1), b.add_output(node, 2)
    else:
        # What goes in counts for nothing, but the kernel writes over it: it gets its own.
        own = [b.op("Neg", operand(node, index)) for index in (3, 4)]
        _, mean, variance = b.ops(
            "BatchNormalization",
            *node.inputs[:3],
            *own,
            outputs=3,
            training_mode=1,
            momentum=0.0,
        )
    return cast(b, mean, x), cast(b, variance, x)
