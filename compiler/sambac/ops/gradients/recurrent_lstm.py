"""The gradients of one direction of an LSTM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor

from .recurrent_cell import (
    CellGradients,
    GateGradients,
    RecurrentLayer,
    both_biases,
    kept,
    product,
    scan_back,
    shifted,
    sigmoid_slope,
    tanh_slope,
    within,
)


@dataclass(frozen=True)
class _Gates:
    """Gates and cell states of a whole sequence; `before` has the cell state before each step."""

    i: ir.Value
    o: ir.Value
    f: ir.Value
    g: ir.Value
    c: ir.Value
    before: ir.Value


def lstm(b: Editor, layer: RecurrentLayer) -> CellGradients:
    """LSTM: c = f c' + i g, h = o tanh(c), where ' marks the step before.

    dc = dc_later + dh o (1 - tanh(c)^2) + do po     dc' = dc f + di pi + df pf
    di = dc g i (1 - i)     df = dc c' f (1 - f)     dg = dc i (1 - g^2)
    do = dh tanh(c) o (1 - o)                        dh' = (di, do, df, dg) R

    with the peepholes pi, po, pf. Every gradient is dc or dh times a factor known beforehand.
    """
    gates = _gates(b, layer)

    def step(
        b: Editor, dh: ir.Value, others: Values, at: Mapping[str, ir.Value]
    ) -> tuple[Values, Values]:
        dc = b.op("Add", others[0], b.op("Mul", dh, at["h_to_c"]))
        dz = b.op("Mul", b.op("Concat", dc, dh, dc, dc, axis=1), at["factors"])
        return [b.op("MatMul", dz, layer.r), b.op("Mul", dc, at["c_to_c"])], [dz]

    states = [layer.dy_h, layer.dy_c]
    (dh, dc), (dz,) = scan_back(b, layer, step, states, _factors(b, layer, gates))
    peepholes: tuple[tuple[ir.Value, ir.Value], ...] = ()
    if layer.peepholes:
        di, do, df, _ = b.ops("Split", dz, outputs=4, axis=2, num_outputs=4)
        peepholes = ((di, gates.before), (do, gates.c), (df, gates.before))
    made = GateGradients(dz)
    return CellGradients(made, ((made, layer.previous),), dh, dc, peepholes)


def _factors(b: Editor, layer: RecurrentLayer, gates: _Gates) -> dict[str, ir.Value]:
    """Return what the gradients of a step's results are multiplied with."""
    squashed = b.op("Tanh", gates.c)
    by_i = b.op("Mul", gates.g, sigmoid_slope(b, gates.i))
    by_o = b.op("Mul", squashed, sigmoid_slope(b, gates.o))
    by_f = b.op("Mul", gates.before, sigmoid_slope(b, gates.f))
    by_g = b.op("Mul", gates.i, tanh_slope(b, gates.g))
    h_to_c = b.op("Mul", gates.o, tanh_slope(b, squashed))
    c_to_c = gates.f
    if layer.peepholes:
        pi, po, pf = layer.peepholes
        h_to_c = b.op("Add", h_to_c, b.op("Mul", by_o, po))
        c_to_c = b.op("Add", c_to_c, b.op("Mul", by_i, pi))
        c_to_c = b.op("Add", c_to_c, b.op("Mul", by_f, pf))
    return {
        "factors": within(b, layer, b.op("Concat", by_i, by_o, by_f, by_g, axis=2)),
        "h_to_c": within(b, layer, h_to_c),
        "c_to_c": kept(b, layer, c_to_c),
    }


def _gates(b: Editor, layer: RecurrentLayer) -> _Gates:
    """Compute the gates and cell states anew."""
    from_x = product(b, layer.x, layer.w, both_biases(b, layer))
    z = product(b, layer.previous, layer.r, from_x)
    zi, zo, zf, zg = b.ops("Split", z, outputs=4, axis=2, num_outputs=4)
    g = b.op("Tanh", zg)
    if layer.peepholes:
        pi, po, pf = layer.peepholes
        c = _peeping_cells(b, layer, zi, zf, g)
        before = shifted(b, c, layer.initial_c, backwards=layer.backwards)
        i, o, f = _peep(b, zi, pi, before), _peep(b, zo, po, c), _peep(b, zf, pf, before)
    else:
        i, o, f = b.op("Sigmoid", zi), b.op("Sigmoid", zo), b.op("Sigmoid", zf)
        c = _cells(b, layer, f, b.op("Mul", i, g))
        before = shifted(b, c, layer.initial_c, backwards=layer.backwards)
    return _Gates(i, o, f, g, c, before)


def _peep(b: Editor, z: ir.Value, weight: ir.Value, c: ir.Value) -> ir.Value:
    """Return Sigmoid(z + p c)."""
    return b.op("Sigmoid", b.op("Add", z, b.op("Mul", c, weight)))


def _cells(b: Editor, layer: RecurrentLayer, f: ir.Value, update: ir.Value) -> ir.Value:
    """Return the cell states of all steps, c = f c' + update."""

    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        c = b.op("Add", b.op("Mul", at[0], states[0]), at[1])
        return [c], [b.op("Identity", c)]

    sequences = [kept(b, layer, f), within(b, layer, update)]
    return scan(b, step, [layer.initial_c], sequences, backwards=layer.backwards)[1][0]


def _peeping_cells(
    b: Editor, layer: RecurrentLayer, zi: ir.Value, zf: ir.Value, g: ir.Value
) -> ir.Value:
    """Return the cell states of all steps where i and f depend on the state before."""
    pi, _, pf = layer.peepholes

    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        before = states[0]
        zi, zf, g, *within = at
        update = b.op("Mul", _peep(b, zi, pi, before), g)
        c = b.op("Add", b.op("Mul", _peep(b, zf, pf, before), before), update)
        if within:
            c = b.op("Add", before, b.op("Mul", b.op("Sub", c, before), within[0]))
        return [c], [b.op("Identity", c)]

    sequences = [zi, zf, g] + ([] if layer.lengths is None else [layer.lengths.within])
    return scan(b, step, [layer.initial_c], sequences, backwards=layer.backwards)[1][0]
