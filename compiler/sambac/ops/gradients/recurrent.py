"""The gradients of recurrent layers: their directions taken apart, and what comes back joined.

Inputs are X, W, R, B, sequence_lens, initial_h and for an LSTM initial_c and P; outputs are Y, Y_h
and for an LSTM Y_c. All but X, Y and sequence_lens have an axis for the directions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.errors import InternalError
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at, text_attribute
from sambac.ops.family import GradientRule, InputGradient

from .recurrent_cell import (
    CellGradients,
    GateGradients,
    Lengths,
    RecurrentLayer,
    concat,
    one_minus,
    shifted,
)
from .recurrent_kept import KEPT, gradients_from_kept
from .recurrent_walk import STYLES, walks
from .rules import operand, zeros

Cell: TypeAlias = Callable[[Editor, RecurrentLayer], CellGradients]
Direction: TypeAlias = tuple[RecurrentLayer, CellGradients]

OUTPUTS: Mapping[str, int] = MappingProxyType({"GRU": 2, "LSTM": 3, "RNN": 2})
"""How many outputs operators have in ONNX."""

STYLE = "formulation"
"""The attribute of a layer that keeps what its gradients read: how it is walked."""


def recurrent_rule(cells: Callable[[ir.Node], Sequence[Cell]]) -> GradientRule:
    """Return the rule of an operator, from what gives the cell of each of a node's directions."""

    def rule(
        b: Editor, node: ir.Node, incoming: Sequence[ir.Value | None]
    ) -> Sequence[InputGradient | None]:
        parts = _CellParts(b, node, incoming)
        if STYLE in node.attributes:
            directions = _of_kept(parts, node)
        else:
            layers = [(parts.layer(number), cell) for number, cell in enumerate(cells(node))]
            directions = [(layer, cell(b, layer)) for layer, cell in layers]
        makers: list[InputGradient | None] = [
            partial(_of_x, parts, directions),
            partial(_joined, b, [partial(_of_w, b, part) for part in directions]),
            partial(_joined, b, [partial(_of_r, b, part) for part in directions]),
            partial(_joined, b, [partial(_of_b, b, part) for part in directions]),
            None,
            partial(_joined, b, [partial(_of_h, part) for part in directions]),
            partial(_joined, b, [partial(_of_c, part) for part in directions]),
            partial(_joined, b, [partial(_of_peepholes, b, part) for part in directions]),
        ]
        return makers[: len(node.inputs)]

    return rule


class _CellParts:
    """A node taken apart by direction."""

    def __init__(self, b: Editor, node: ir.Node, incoming: Sequence[ir.Value | None]) -> None:
        self.b = b
        self.x = operand(node, 0)
        self._node = node
        self._inputs = [input_at(node, index) for index in range(8)]
        self._y = b.add_output(node, 0)
        self._dy, self._dy_h, self._dy_c = (*incoming, None, None)[:3]
        self._reverse = text_attribute(node, "direction", "forward") == "reverse"
        lens = self._inputs[4]
        self._lens = None if lens is None else b.op("Cast", lens, to=int(ir.DataType.INT64))
        self._lengths = None if self._lens is None else self._masks(self._lens)

    def is_backwards(self, number: int) -> bool:
        """Tell whether direction `number` begins with the last step of each sequence."""
        return self._reverse or number == 1

    def turn(self, sequence: ir.Value, number: int) -> ir.Value:
        """Let the sequences of a backwards direction begin with their first step, if they vary.

        Where all have the same length, the layer is walked the other way instead.
        """
        if self._lens is None or not self.is_backwards(number):
            return sequence
        return self.b.op("ReverseSequence", sequence, self._lens, time_axis=0, batch_axis=1)

    def layer(self, number: int, y: ir.Value | None = None) -> RecurrentLayer:
        """Return direction `number`, whose hidden states are `y` if that is known."""
        b = self.b
        backwards = self.is_backwards(number) and self._lens is None
        if y is None:
            y = self.turn(part(b, self._y, number, axis=1), number)
        wb, rb = self._halves(3, number)
        initial_h = self._state(self._inputs[5], number)
        return RecurrentLayer(
            x=self.turn(self.x, number),
            y=y,
            previous=shifted(b, y, initial_h, backwards=backwards),
            w=part(b, operand(self._node, 1), number),
            r=part(b, operand(self._node, 2), number),
            wb=wb,
            rb=rb,
            dy=None if self._dy is None else self.turn(part(b, self._dy, number, axis=1), number),
            dy_h=self._state(self._dy_h, number),
            backwards=backwards,
            lengths=self._lengths,
            initial_c=self._state(self._inputs[6], number),
            dy_c=self._state(self._dy_c, number),
            peepholes=self._peepholes(number),
        )

    def _state(self, value: ir.Value | None, number: int) -> ir.Value:
        """Return a direction's part of a state or of its gradient, zeros where it is absent."""
        if value is not None:
            return part(self.b, value, number)
        _, _, batch, hidden = shape_of(self._y)
        return zeros(self.b, self.x.dtype, (batch, hidden))

    def _halves(self, index: int, number: int) -> tuple[ir.Value | None, ir.Value | None]:
        value = self._inputs[index]
        if value is None:
            return None, None
        own = part(self.b, value, number)
        first, second = self.b.ops("Split", own, outputs=2, axis=0, num_outputs=2)
        return first, second

    def _peepholes(self, number: int) -> tuple[ir.Value, ...]:
        value = self._inputs[7]
        if value is None:
            return ()
        own = part(self.b, value, number)
        return self.b.ops("Split", own, outputs=3, axis=0, num_outputs=3)

    def _masks(self, lens: ir.Value) -> Lengths:
        steps, batch, _ = shape_of(self.x)
        numbers = np.arange(steps, dtype=np.int64).reshape(steps, 1, 1)
        counts = self.b.op("Less", numbers, self.b.op("Reshape", lens, [1, batch, 1]))
        within = self.b.op("CastLike", counts, self.x)
        return Lengths(within, one_minus(self.b, within))


def _of_kept(parts: _CellParts, node: ir.Node) -> list[Direction]:
    """Return the directions of a layer that keeps what its gradients read."""
    b, cell = parts.b, KEPT[node.op_type]
    style = STYLES[node.attributes[STYLE].as_string()]
    kept = list(node.outputs[OUTPUTS[node.op_type] :])
    found: list[Direction] = []
    for walk in walks(node, style):
        mine, kept = kept[: len(cell.names)], kept[len(cell.names) :]
        ys = walk.sequences(b, cell.hidden(b, mine))
        layers = [parts.layer(d, y) for d, y in zip(walk.numbers, ys, strict=True)]
        found += zip(layers, gradients_from_kept(b, walk, cell, layers, mine), strict=True)
    return found


def _of_x(parts: _CellParts, directions: Sequence[Direction]) -> ir.Value:
    """dX = dgates W, summed over the directions."""
    b = parts.b
    gradients = [
        parts.turn(cell.gates.times(b, layer.w), number)
        for number, (layer, cell) in enumerate(directions)
    ]
    return reduce(partial(b.op, "Add"), gradients)


def _of_w(b: Editor, direction: Direction) -> ir.Value:
    """dW = dgates^T X over all steps."""
    layer, cell = direction
    return cell.gates.outer(b, layer.x)


def _of_r(b: Editor, direction: Direction) -> ir.Value:
    """dR = dgates^T h' over all steps, where ' marks the step before."""
    _, cell = direction
    return concat(b, [gates.outer(b, states) for gates, states in cell.recurrent], 0)


def _of_b(b: Editor, direction: Direction) -> ir.Value:
    """dB: the gradients of the gates summed over steps and batch, for each of the two biases."""
    _, cell = direction
    from_x = cell.gates.summed(b)
    from_h = [from_x if gates is cell.gates else gates.summed(b) for gates, _ in cell.recurrent]
    return b.op("Concat", from_x, *from_h, axis=0)


def _of_peepholes(b: Editor, direction: Direction) -> ir.Value:
    """dP = dgate c summed over steps and batch."""
    _, cell = direction
    products = [b.op("Mul", gate, state) for gate, state in cell.peepholes]
    return GateGradients(b.op("Concat", *products, axis=2)).summed(b)


def _of_h(direction: Direction) -> ir.Value:
    """The gradient of the hidden state before the first step."""
    return direction[1].initial_h


def _of_c(direction: Direction) -> ir.Value:
    """The gradient of the cell state before the first step."""
    gradient = direction[1].initial_c
    if gradient is None:
        raise InternalError("a cell without a cell state")
    return gradient


def _joined(b: Editor, makers: Sequence[InputGradient]) -> ir.Value:
    """Return what the directions give, along a new first axis."""
    return concat(b, [b.op("Unsqueeze", make(), [0]) for make in makers], 0)


def part(b: Editor, value: ir.Value, number: int, axis: int = 0) -> ir.Value:
    """Return one direction of `value`, without the axis of the directions."""
    if shape_of(value)[axis] == 1:
        return b.op("Squeeze", value, [axis])
    return b.op("Gather", value, np.asarray(number, np.int64), axis=axis)
