"""What the gradients of all recurrent cells share: one direction of a layer, and the walk back.

All that does not pass from step to step is computed for the whole sequence at once: the gates
anew, from the inputs and the states that the layer gave out, and from them the factors that turn
gradients of a step's result into those of its gates. The Scan that remains walks from the last step
to the first with a handful of operators. The products that make the gradients of weights are for
the whole sequence, too.

Gradients of gates are those of what their sigmoid or tanh is taken of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import onnx_ir as ir

from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor, shape_of

from .rules import column_sums, flatten, number, positive


@dataclass(frozen=True)
class Lengths:
    """Where a step counts for a sequence, and where it lies beyond its end: 1 there, 0 elsewhere.

    Both are `[steps, batch, 1]`.
    """

    within: ir.Value
    beyond: ir.Value


@dataclass(frozen=True)
class RecurrentLayer:
    """One direction of a layer: what it read and gave, and the gradients of what it gave.

    Sequences are `[steps, batch, size]`, states `[batch, hidden]`, weights `[gates * hidden, size]`
    and biases `[gates * hidden]`. `previous` has the hidden state before each step. `backwards`
    ones begin with the last step. `initial_c`, `peepholes` (of i, o, f) and `dy_c` are an LSTM's.
    """

    x: ir.Value
    y: ir.Value
    previous: ir.Value
    w: ir.Value
    r: ir.Value
    wb: ir.Value | None
    rb: ir.Value | None
    dy: ir.Value | None
    dy_h: ir.Value
    backwards: bool
    lengths: Lengths | None
    initial_c: ir.Value
    dy_c: ir.Value
    peepholes: tuple[ir.Value, ...]

    @property
    def hidden(self) -> int:
        """The size of the hidden state."""
        return shape_of(self.y)[2]


@dataclass(frozen=True)
class GateGradients:
    """The gradients of gates for a whole sequence: `[steps, batch, gates * hidden]`.

    As `columns` they are `[gates * hidden, steps, batch]`.
    """

    value: ir.Value
    columns: bool = False

    def outer(self, b: Editor, sequence: ir.Value) -> ir.Value:
        """Return gates^T sequence, over steps and batch."""
        right = flatten(b, sequence, -1)
        if self.columns:
            return b.op("MatMul", self._flat(b), right)
        return b.op("Gemm", self._flat(b), right, transA=1)

    def times(self, b: Editor, weights: ir.Value) -> ir.Value:
        """Return gates weights, `[steps, batch, size]`."""
        if not self.columns:
            return b.op("MatMul", self.value, weights)
        made = b.op("Gemm", self._flat(b), weights, transA=1)
        return b.op("Reshape", made, [*shape_of(self.value)[1:], -1])

    def summed(self, b: Editor) -> ir.Value:
        """Return the sum over steps and batch."""
        if self.columns:
            return b.op("ReduceSum", self._flat(b), [1], keepdims=0)
        return column_sums(b, self._flat(b))

    def _flat(self, b: Editor) -> ir.Value:
        """Return a matrix, one of whose axes is steps and batch."""
        return flatten(b, self.value, 1 if self.columns else -1)


@dataclass(frozen=True)
class CellGradients:
    """The gradients of one direction's gates for the whole sequence, and of its first states.

    `gates` is the gradient of x W^T; `recurrent` has, for one
    block of gates after the other, the gradient of its product with R, and what R was multiplied
    with. `peepholes` has the gradients of gates, each with the cell state that it peeped at.
    """

    gates: GateGradients
    recurrent: tuple[tuple[GateGradients, ir.Value], ...]
    initial_h: ir.Value
    initial_c: ir.Value | None = None
    peepholes: tuple[tuple[ir.Value, ir.Value], ...] = ()


# From the gradients of the hidden state and of the other states after a step, and the slices of the
# sequences, to those before the step, and what to stack.
StepBack: TypeAlias = Callable[
    [Editor, ir.Value, Values, Mapping[str, ir.Value]], tuple[Values, Values]
]


def scan_back(
    b: Editor,
    layer: RecurrentLayer,
    step: StepBack,
    states: Values,
    sequences: Mapping[str, ir.Value],
) -> tuple[Values, Values]:
    """Run `step` from the last step of `layer` to the first, as `scan` does.

    The first of `states` is the gradient of the hidden state, to which each step's output adds its
    own. Beyond the end of a sequence it passes unchanged; there, factors in `sequences` are 0.
    """
    slices = dict(sequences)
    if layer.dy is not None:
        slices["dy"] = within(b, layer, layer.dy)
    if layer.lengths is not None:
        slices["beyond"] = layer.lengths.beyond

    def body(b: Editor, before: Values, elements: Values) -> tuple[Values, Values]:
        named = dict(zip(slices, elements, strict=True))
        dh = before[0]
        if "dy" in named:
            dh = b.op("Add", dh, named["dy"])
        (back, *others), given = step(b, dh, before[1:], named)
        if "beyond" in named:
            back = b.op("Add", back, b.op("Mul", dh, named["beyond"]))
        return (back, *others), given

    return scan(b, body, states, list(slices.values()), backwards=not layer.backwards)


def within(b: Editor, layer: RecurrentLayer, sequence: ir.Value) -> ir.Value:
    """Return `sequence` with zeros beyond the ends."""
    return sequence if layer.lengths is None else b.op("Mul", sequence, layer.lengths.within)


def kept(b: Editor, layer: RecurrentLayer, sequence: ir.Value) -> ir.Value:
    """Return `sequence`, factors of a state, with ones beyond the ends."""
    if layer.lengths is None:
        return sequence
    return b.op("Add", b.op("Mul", sequence, layer.lengths.within), layer.lengths.beyond)


def product(b: Editor, x: ir.Value, weights: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    """Return x W^T + bias for a whole sequence, `bias` of any shape that Gemm adds."""
    steps, batch, size = shape_of(x)
    flat = b.op("Reshape", x, [steps * batch, size])
    if bias is not None and len(shape_of(bias)) == 3:
        bias = b.op("Reshape", bias, [steps * batch, -1])
    result = b.op("Gemm", flat, weights, bias, transB=1)
    return b.op("Reshape", result, [steps, batch, -1])


def both_biases(b: Editor, layer: RecurrentLayer) -> ir.Value | None:
    """Return Wb + Rb."""
    if layer.wb is None or layer.rb is None:
        return None
    return b.op("Add", layer.wb, layer.rb)


def shifted(b: Editor, states: ir.Value, first: ir.Value, *, backwards: bool) -> ir.Value:
    """Return the states before each step, from those after each and the very first one."""
    steps = shape_of(states)[0]
    head = b.op("Unsqueeze", first, [0])
    if steps == 1:
        return head
    if backwards:
        return b.op("Concat", b.op("Slice", states, [1], [steps], [0]), head, axis=0)
    return b.op("Concat", head, b.op("Slice", states, [0], [steps - 1], [0]), axis=0)


def concat(b: Editor, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return `parts` one after the other."""
    return parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=axis)


def one_minus(b: Editor, value: ir.Value) -> ir.Value:
    """Return 1 - value."""
    return b.op("Sub", 1.0, value)


def sigmoid_slope(b: Editor, y: ir.Value) -> ir.Value:
    """Return y (1 - y), the derivative of a sigmoid whose value is y."""
    return b.op("Mul", y, one_minus(b, y))


def tanh_slope(b: Editor, y: ir.Value) -> ir.Value:
    """Return 1 - y^2, the derivative of a tanh whose value is y."""
    return one_minus(b, b.op("Mul", y, y))


SLOPES: Mapping[str, Callable[[Editor, ir.Value], ir.Value]] = {
    "tanh": tanh_slope,
    "sigmoid": sigmoid_slope,
    "relu": positive,
}


def rnn(activation: str) -> Callable[[Editor, RecurrentLayer], CellGradients]:
    """RNN: h = f(x W + h' R + b), where h' is h one step before.

    da = dh f'(a)    dh' = da R

    What a rectifier stops is chosen, not multiplied by 0: dh may be infinite.
    """

    def gradients(b: Editor, layer: RecurrentLayer) -> CellGradients:
        def step(
            b: Editor, dh: ir.Value, others: Values, at: Mapping[str, ir.Value]
        ) -> tuple[Values, Values]:
            if activation == "relu":
                da = b.op("Where", at["slope"], dh, number(b, 0.0, dh))
            else:
                da = b.op("Mul", dh, at["slope"])
            return [b.op("MatMul", da, layer.r)], [da]

        slope = within(b, layer, SLOPES[activation](b, layer.y))
        if activation == "relu":
            slope = b.op("Not", b.op("LessOrEqual", slope, 0.0))
        (dh,), (da,) = scan_back(b, layer, step, [layer.dy_h], {"slope": slope})
        gates = GateGradients(da)
        return CellGradients(gates, ((gates, layer.previous),), dh)

    return gradients
