"""How the directions of a recurrent layer are walked: apart or in one Scan, in rows or in columns.

States are rows, `[batch, hidden]`, or columns, `[hidden, batch]`. A product h R^T of few rows packs
all of R anew in every step, R h^T packs the few columns; in exchange sequences are transposed
before and after. Both directions in one Scan have their states side by side, and half the
operators that are no products: what counts where states are small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import onnx_ir as ir

from sambac.graph.control_flow import Values, Ways, scan
from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import text_attribute

from .recurrent_cell import GateGradients, concat
from .rules import operand, swap_last, transpose

Kinds: TypeAlias = Sequence[Values]
"""For each kind of sequence one for each direction."""

# From the states before a step, those of all directions side by side, what all directions have in
# common and what each has, to the states after it and what to stack.
JointStep: TypeAlias = Callable[[Editor, Values, Kinds], tuple[Values, Values]]
ApartStep: TypeAlias = Callable[[Editor, Values, Values, Values], tuple[Values, Kinds]]


@dataclass(frozen=True)
class Style:
    """How a layer is walked: states as `columns`, both directions `together`."""

    columns: bool = False
    together: bool = False


STYLES: Mapping[str, Style] = MappingProxyType({
    "both directions at once": Style(together=True),
    "columns": Style(columns=True),
    "rows": Style(),
})  # fmt: skip
"""The ways to walk a layer, by the names that users know."""


@dataclass(frozen=True)
class LayerWalk:
    """Directions `numbers` of a layer in one Scan; each of them may go `backwards`.

    What they have in common lies in the order in which the first of them meets the steps of the
    layer, as does what each has alone in the order of the layer.
    """

    numbers: tuple[int, ...]
    backwards: tuple[bool, ...]
    columns: bool

    @property
    def gates(self) -> int:
        """The axis of gates, and of the hidden size, in a state."""
        return 0 if self.columns else 1

    def laid(self, b: Editor, value: ir.Value) -> ir.Value:
        """Return states, or a sequence of them, as they are walked; or such as rows again."""
        return swap_last(b, value) if self.columns else value

    def joined(self, b: Editor, parts: Values) -> ir.Value:
        """Return the states of all directions side by side."""
        return concat(b, parts, rank_of(parts[0]) - 1 - self.gates)

    def apart(self, b: Editor, value: ir.Value) -> Values:
        """Return the states of each direction, or sequences of them."""
        if len(self.numbers) == 1:
            return (value,)
        axis = rank_of(value) - 1 - self.gates
        return b.ops("Split", value, outputs=2, axis=axis, num_outputs=2)

    def sequences(self, b: Editor, value: ir.Value) -> Values:
        """Return sequences of each direction, rows in the order of the layer, from joint ones."""
        return [
            self.laid(b, part if back == self.backwards[0] else _turned(b, part))
            for part, back in zip(self.apart(b, value), self.backwards, strict=True)
        ]

    def product(
        self, b: Editor, states: ir.Value, weights: ir.Value, more: ir.Value | None
    ) -> ir.Value:
        """Return states times weights^T, and more, of one direction."""
        if self.columns:
            return b.op("Gemm", weights, states, more)
        return b.op("Gemm", states, weights, more, transB=1)

    def bias(self, b: Editor, bias: ir.Value | None) -> ir.Value | None:
        """Return a bias as `product` adds it to each state."""
        if bias is None or not self.columns:
            return bias
        return b.op("Unsqueeze", bias, [1])

    def back_weights(self, b: Editor, weights: ir.Value) -> ir.Value:
        """Return what `back` multiplies with, made once for all steps."""
        return b.op("Transpose", weights, perm=[1, 0]) if self.columns else weights

    def back(
        self, b: Editor, gates: ir.Value, weights: ir.Value, more: ir.Value | None
    ) -> ir.Value:
        """Return gates times weights, and more, of one direction."""
        operands = (weights, gates) if self.columns else (gates, weights)
        if more is None:
            return b.op("MatMul", *operands)
        return b.op("Gemm", *operands, more)

    def gradients(self, b: Editor, gates: ir.Value) -> GateGradients:
        """Return the gradients of one direction's gates from what was stacked."""
        if self.columns:
            return GateGradients(transpose(b, gates, [1, 0, 2]), columns=True)
        return GateGradients(gates)

    def forth(
        self, b: Editor, step: JointStep, states: Values, kinds: Kinds, *, stacks: int
    ) -> tuple[Values, Values]:
        """Run `step` from the first step to the last; it gives so many stacks."""
        count = len(self.numbers)

        def body(b: Editor, before: Values, at: Values) -> tuple[Values, Values]:
            return step(b, before, [at[k : k + count] for k in range(0, len(at), count)])

        ways = Ways(self.backwards * len(kinds), (self.backwards[0],) * stacks)
        return scan(b, body, states, [each for kind in kinds for each in kind], backwards=ways)

    def back_again(
        self, b: Editor, step: ApartStep, states: Values, sequences: Kinds, *, kinds: int
    ) -> tuple[Values, Kinds]:
        """Run `step` from the last step to the first; each direction gives so many stacks.

        `sequences` are what all directions have in common, and what each has of its own.
        """
        common, own = sequences
        count = len(self.numbers)

        def body(b: Editor, before: Values, at: Values) -> tuple[Values, Values]:
            after, given = step(b, before, at[: len(common)], at[len(common) :])
            return after, [each for kind in given for each in kind]

        lead, *_ = later = tuple(not back for back in self.backwards)
        ways = Ways((lead,) * len(common) + (later if own else ()), later * kinds)
        last, stacks = scan(b, body, states, [*common, *own], backwards=ways)
        return last, [stacks[k : k + count] for k in range(0, len(stacks), count)]


def walks(node: ir.Node, style: Style) -> list[LayerWalk]:
    """Return how the directions of a layer are walked."""
    count = shape_of(operand(node, 2))[0]
    reverse = text_attribute(node, "direction", "forward") == "reverse"
    backwards = (reverse, True)[:count]
    if style.together:
        return [LayerWalk(tuple(range(count)), backwards, style.columns)]
    return [LayerWalk((d,), (back,), style.columns) for d, back in enumerate(backwards)]


def _turned(b: Editor, sequence: ir.Value) -> ir.Value:
    """Return `sequence` from its end."""
    steps = shape_of(sequence)[0]
    return b.op("Slice", sequence, [steps - 1], [-steps - 1], [0], [-1])
