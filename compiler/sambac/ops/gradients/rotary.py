"""The gradients of rotary embeddings: pairs of elements, rotated by an angle for each position.

    (y1, y2) = (c x1 - s x2, s x1 + c x2)

    dx = the same with -s for s: rotated back        dc = dy1 x1 + dy2 x2        ds = dy . r

where r = (-x2, x1) is x rotated by a right angle; dc and ds are summed over heads, and over all
places with the same position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import input_at, int_attribute
from sambac.ops.family import InputGradient, qualified

from .row_sums import sum_along
from .rules import cut, incoming, operand, reshape, transpose, zeros

_MICROSOFT = "com.microsoft"


@dataclass(frozen=True)
class _Rotation:
    """One operator, whose inputs stand elsewhere in each domain."""

    b: Editor
    node: ir.Node
    dy: ir.Value
    cosines: int
    sines: int
    positions: int

    def back(self) -> ir.Value:
        """Return dx."""
        sines = self.b.op("Neg", operand(self.node, self.sines))
        return self._rotated(self.dy, operand(self.node, self.cosines), sines)

    def for_cosines(self) -> ir.Value:
        """Return dc."""
        return self._angle_sums(operand(self.node, 0))

    def for_sines(self) -> ir.Value:
        """Return ds."""
        cosines = operand(self.node, self.cosines)
        none = zeros(self.b, cosines.dtype, shape_of(cosines))
        one = self.b.op("Add", none, 1.0)
        return self._angle_sums(self._rotated(operand(self.node, 0), none, one))

    def _rotated(self, x: ir.Value, cosines: ir.Value, sines: ir.Value) -> ir.Value:
        inputs = list(self.node.inputs)
        inputs[0], inputs[self.cosines], inputs[self.sines] = x, cosines, sines
        attributes = {name: attribute.value for name, attribute in self.node.attributes.items()}
        return self.b.op("RotaryEmbedding", *inputs, domain=self.node.domain, **attributes)

    def _angle_sums(self, other: ir.Value) -> ir.Value:
        """Return the sums of dy * other over each pair, the heads and equal positions."""
        b, cache = self.b, operand(self.node, self.cosines)
        half = shape_of(cache)[-1]
        by_head = self._heads_last(b.op("Mul", self.dy, other))
        batch, length, heads, _ = shape_of(by_head)
        interleaved = int_attribute(self.node, "interleaved") != 0
        pairs = (half, 2) if interleaved else (2, half)
        turned = reshape(b, cut(b, by_head, {3: (0, 2 * half)}), (batch, length, heads, *pairs))
        axes = [2, 4] if interleaved else [2, 3]
        sums = b.op("ReduceSum", turned, axes, keepdims=0)
        index = self._index(batch, length)
        if index is None:
            return sums
        rows = reshape(b, sums, (batch * length, half))
        return sum_along(b, index, rows, 0, shape_of(cache)[0])

    def _heads_last(self, x: ir.Value) -> ir.Value:
        """Return `[batch, length, heads, size]`."""
        if rank_of(x) == 4:
            return transpose(self.b, x, (0, 2, 1, 3))
        batch, length, width = shape_of(x)
        half = shape_of(operand(self.node, self.cosines))[-1]
        heads = int_attribute(self.node, "num_heads") or width // (2 * half)
        return reshape(self.b, x, (batch, length, heads, width // heads))

    def _index(self, batch: int, length: int) -> ir.Value | None:
        """Return the position of every place, or None if each has angles of its own."""
        positions = input_at(self.node, self.positions)
        if positions is None:
            return None
        if shape_of(positions) == (1,):  # where the first place is
            counted = self.b.op("Add", positions, np.arange(length))
            return self.b.op("Tile", counted, [batch])
        return reshape(self.b, positions, (batch * length,))


def _rotary_embedding(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """Inputs are x, cosines, sines and positions; see the top of this file."""
    at = _Rotation(b, node, incoming(node, gradients), cosines=1, sines=2, positions=3)
    return at.back, at.for_cosines, at.for_sines


def _microsoft_rotary_embedding(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """Inputs are x, positions, cosines and sines; see the top of this file."""
    at = _Rotation(b, node, incoming(node, gradients), cosines=2, sines=3, positions=1)
    return at.back, None, at.for_cosines, at.for_sines


GRADIENTS = {
    "RotaryEmbedding": _rotary_embedding,
    qualified(_MICROSOFT, "RotaryEmbedding"): _microsoft_rotary_embedding,
}
