"""What an LSTM and a GRU do in a step where they keep what their gradients read, and the way back.

    LSTM: u = x W^T + b;   i, o, f, g = u + h' R^T behind Sigmoid, Tanh for g
          m = f c';  c = m + i g;  s = Tanh(c);  h = o s          kept: i, o, f, g, m, s
    GRU:  u = x W^T + b;   q = h' Rn^T + bn
          z, r = Sigmoid(u + h' R^T + b);  n = Tanh(u + r q)
          d = z (h' - n);  h = n + d                              kept: z, r, n, q, d

where ' marks the step before; the gradients are those of `recurrent_lstm.py` and
`recurrent_gru.py`. Every operator of a step costs time of its own, so that what can be computed for
all steps at once is: hidden states from what is kept, and the factors of gradients. The gradient of
a step's result is added in the product that makes that of the state before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import TypeAlias

import onnx_ir as ir

from sambac.graph.control_flow import Values
from sambac.graph.editor import Editor, shape_of

from .recurrent_cell import (
    CellGradients,
    GateGradients,
    RecurrentLayer,
    one_minus,
    product,
    shifted,
    sigmoid_slope,
    tanh_slope,
)
from .recurrent_walk import JointStep, Kinds, LayerWalk
from .rules import zeros


@dataclass(frozen=True)
class Weights:
    """The weights of one direction; biases may be absent."""

    w: ir.Value
    r: ir.Value
    wb: ir.Value | None
    rb: ir.Value | None


# From gates' gradients, for each direction, to the gradient of the hidden state before a step.
_Back: TypeAlias = Callable[[Editor, Values], ir.Value]
_StepBack: TypeAlias = Callable[[Editor, Values, Values, _Back], tuple[Values, Kinds]]


@dataclass(frozen=True)
class KeptCell:
    """An operator that keeps what its gradients read.

    `names` of what is kept, which inputs of the operator are its `states`; `forth` gives what each
    direction's steps read and what a step is, `hidden` the hidden states from what is kept, `back`
    likewise what steps of the way back read and are, and `gates` the gradients of x W^T and of
    h R^T from what a direction's steps gave, of which there are so many `stacks`.
    """

    names: tuple[str, ...]
    states: tuple[int, ...]
    stacks: int
    forth: Callable[[Editor, LayerWalk, ir.Value, Sequence[Weights]], tuple[Kinds, JointStep]]
    hidden: Callable[[Editor, Values], ir.Value]
    back: Callable[[Editor, LayerWalk, Values], tuple[Values, _StepBack]]
    gates: Callable[[Editor, LayerWalk, Values], tuple[GateGradients, GateGradients]]


def _lstm_forth(
    b: Editor, walk: LayerWalk, x: ir.Value, weights: Sequence[Weights]
) -> tuple[Kinds, JointStep]:
    def from_x(each: Weights) -> ir.Value:
        bias = each.wb
        if bias is not None:
            bias = b.op("Add", bias, each.rb)
        return walk.laid(b, product(b, x, each.w, bias))

    def step(b: Editor, states: Values, at: Kinds) -> tuple[Values, Values]:
        parts = zip(walk.apart(b, states[0]), weights, at[0], strict=True)
        z = walk.joined(b, [walk.product(b, h, each.r, u) for h, each, u in parts])
        zi, zo, zf, zg = b.ops("Split", z, outputs=4, axis=walk.gates, num_outputs=4)
        i, o, f = (b.op("Sigmoid", gate) for gate in (zi, zo, zf))
        g = b.op("Tanh", zg)
        m = b.op("Mul", f, states[1])
        c = b.op("Add", m, b.op("Mul", i, g))
        s = b.op("Tanh", c)
        return [b.op("Mul", o, s), c], [i, o, f, g, m, s]

    return [[from_x(each) for each in weights]], step


def _lstm_hidden(b: Editor, kept: Values) -> ir.Value:
    return b.op("Mul", kept[1], kept[5])


def _lstm_back(b: Editor, walk: LayerWalk, kept: Values) -> tuple[Values, _StepBack]:
    i, o, f, g, m, s = kept
    by_i = b.op("Mul", g, sigmoid_slope(b, i))
    by_o = b.op("Mul", _lstm_hidden(b, kept), one_minus(b, o))
    by_f = b.op("Mul", m, one_minus(b, f))
    by_g = b.op("Mul", i, tanh_slope(b, g))
    factors = b.op("Concat", by_i, by_o, by_f, by_g, axis=walk.gates + 1)
    h_to_c = b.op("Mul", o, tanh_slope(b, s))

    def step(b: Editor, states: Values, at: Values, back: _Back) -> tuple[Values, Kinds]:
        dh, later = states
        factors, h_to_c, f = at
        dc = b.op("Add", later, b.op("Mul", dh, h_to_c))
        dz = b.op("Mul", b.op("Concat", dc, dh, dc, dc, axis=walk.gates), factors)
        parts = walk.apart(b, dz)
        return [back(b, parts), b.op("Mul", dc, f)], [parts]

    return [factors, h_to_c, f], step


def _lstm_gates(b: Editor, walk: LayerWalk, stacks: Values) -> tuple[GateGradients, GateGradients]:
    gates = walk.gradients(b, stacks[0])
    return gates, gates


def _gru_forth(
    b: Editor, walk: LayerWalk, x: ir.Value, weights: Sequence[Weights]
) -> tuple[Kinds, JointStep]:
    def halves(value: ir.Value) -> Values:
        hidden = shape_of(value)[0] // 3
        return b.ops("Split", value, [2 * hidden, hidden], outputs=2, axis=0)

    def biases(each: Weights) -> tuple[ir.Value | None, ir.Value | None, ir.Value | None]:
        if each.wb is None or each.rb is None:
            return None, None, None
        (w_zr, w_n), (r_zr, r_n) = halves(each.wb), halves(each.rb)
        return b.op("Add", w_zr, r_zr), w_n, walk.bias(b, r_n)

    bias = [biases(each) for each in weights]
    w, r = [halves(each.w) for each in weights], [halves(each.r) for each in weights]
    kinds = [
        [walk.laid(b, product(b, x, w[d][kind], bias[d][kind])) for d in range(len(weights))]
        for kind in (0, 1)
    ]

    def step(b: Editor, states: Values, at: Kinds) -> tuple[Values, Values]:
        (h,) = states
        parts = list(enumerate(walk.apart(b, h)))
        sums = [walk.product(b, part, r[d][0], at[0][d]) for d, part in parts]
        zr = b.op("Sigmoid", walk.joined(b, sums))
        z, reset = b.ops("Split", zr, outputs=2, axis=walk.gates, num_outputs=2)
        q = walk.joined(b, [walk.product(b, part, r[d][1], bias[d][2]) for d, part in parts])
        n = b.op("Tanh", b.op("Add", walk.joined(b, at[1]), b.op("Mul", reset, q)))
        d = b.op("Mul", z, b.op("Sub", h, n))
        return [b.op("Add", n, d)], [z, reset, n, q, d]

    return kinds, step


def _gru_hidden(b: Editor, kept: Values) -> ir.Value:
    return b.op("Add", kept[2], kept[4])


def _gru_back(b: Editor, walk: LayerWalk, kept: Values) -> tuple[Values, _StepBack]:
    z, r, n, q, d = kept
    by_z = b.op("Mul", d, one_minus(b, z))
    by_n = b.op("Mul", one_minus(b, z), tanh_slope(b, n))
    by_q = b.op("Mul", by_n, r)
    by_r = b.op("Mul", b.op("Mul", by_q, q), one_minus(b, r))
    factors = b.op("Concat", by_z, by_r, by_q, axis=walk.gates + 1)

    def step(b: Editor, states: Values, at: Values, back: _Back) -> tuple[Values, Kinds]:
        (dh,) = states
        factors, by_n, z = at
        gates = b.op("Mul", b.op("Concat", dh, dh, dh, axis=walk.gates), factors)
        parts = walk.apart(b, gates)
        before = b.op("Add", back(b, parts), b.op("Mul", dh, z))
        return [before], [parts, walk.apart(b, b.op("Mul", dh, by_n))]

    return [factors, by_n, z], step


def _gru_gates(b: Editor, walk: LayerWalk, stacks: Values) -> tuple[GateGradients, GateGradients]:
    from_h, dn = stacks
    axis = walk.gates + 1
    hidden = shape_of(dn)[axis]
    d_zr, _ = b.ops("Split", from_h, [2 * hidden, hidden], outputs=2, axis=axis)
    from_x = b.op("Concat", d_zr, dn, axis=axis)
    return walk.gradients(b, from_x), walk.gradients(b, from_h)


KEPT: Mapping[str, KeptCell] = MappingProxyType({
    "GRU": KeptCell(
        names=("z", "r", "n", "q", "d"),
        states=(5,),
        stacks=2,
        forth=_gru_forth,
        hidden=_gru_hidden,
        back=_gru_back,
        gates=_gru_gates,
    ),
    "LSTM": KeptCell(
        names=("i", "o", "f", "g", "m", "s"),
        states=(5, 6),
        stacks=1,
        forth=_lstm_forth,
        hidden=_lstm_hidden,
        back=_lstm_back,
        gates=_lstm_gates,
    ),
})  # fmt: skip
"""The operators that keep what their gradients read."""


@dataclass(frozen=True)
class Walked:
    """What the directions of a walk give: hidden states, the last states, and what is kept."""

    y: Values
    last: Kinds
    kept: Values


def walk_forth(
    b: Editor,
    walk: LayerWalk,
    cell: KeptCell,
    x: ir.Value,
    directions: Sequence[tuple[Weights, Values]],
) -> Walked:
    """Run the directions of `walk` over x, each with its weights and the states it begins with."""
    kinds, step = cell.forth(b, walk, x, [weights for weights, _ in directions])
    starts = [
        walk.joined(b, [walk.laid(b, states[k]) for _, states in directions])
        for k in range(len(cell.states))
    ]
    last, kept = walk.forth(b, step, starts, kinds, stacks=len(cell.names))
    ends = [[walk.laid(b, part) for part in walk.apart(b, each)] for each in last]
    return Walked(walk.sequences(b, cell.hidden(b, kept)), ends, kept)


def gradients_from_kept(
    b: Editor, walk: LayerWalk, cell: KeptCell, layers: Sequence[RecurrentLayer], kept: Values
) -> list[CellGradients]:
    """Return the gradients of the directions of `walk` from what they kept."""
    common, step = cell.back(b, walk, kept)
    weights = [walk.back_weights(b, each.r) for each in layers]
    own = [] if layers[0].dy is None else [_before(b, walk, each) for each in layers]

    def body(b: Editor, states: Values, at: Values, dy: Values) -> tuple[Values, Kinds]:
        def back(b: Editor, gates: Values) -> ir.Value:
            operands = zip_longest(gates, weights, dy)
            return walk.joined(b, [walk.back(b, *each) for each in operands])

        return step(b, states, at, back)

    starts = [walk.joined(b, [walk.laid(b, _last(b, each)) for each in layers])]
    if len(cell.states) > 1:
        starts.append(walk.joined(b, [walk.laid(b, each.dy_c) for each in layers]))
    first, stacks = walk.back_again(b, body, starts, (common, own), kinds=cell.stacks)
    firsts = [[walk.laid(b, part) for part in walk.apart(b, each)] for each in first]
    made = []
    for d, layer in enumerate(layers):
        from_x, from_h = cell.gates(b, walk, [kind[d] for kind in stacks])
        dh, *dc = (each[d] for each in firsts)
        recurrent = ((from_h, layer.previous),)
        made.append(CellGradients(from_x, recurrent, dh, dc[0] if dc else None))
    return made


def _last(b: Editor, layer: RecurrentLayer) -> ir.Value:
    """Return the gradient of a direction's hidden state after its last step."""
    if layer.dy is None:
        return layer.dy_h
    at = 0 if layer.backwards else shape_of(layer.dy)[0] - 1
    row = b.op("Squeeze", b.op("Slice", layer.dy, [at], [at + 1], [0]), [0])
    return b.op("Add", layer.dy_h, row)


def _before(b: Editor, walk: LayerWalk, layer: RecurrentLayer) -> ir.Value:
    """Return the gradients that each step's state before it gets as the result of a step."""
    assert layer.dy is not None
    none = zeros(b, layer.x.dtype, shape_of(layer.dy_h))
    return walk.laid(b, shifted(b, layer.dy, none, backwards=layer.backwards))
