"""The gradients of one direction of a GRU, whose reset gate acts after or before a product."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from sambac.graph.control_flow import Values
from sambac.graph.editor import Editor

from .recurrent_cell import (
    CellGradients,
    GateGradients,
    RecurrentLayer,
    both_biases,
    one_minus,
    product,
    scan_back,
    sigmoid_slope,
    tanh_slope,
    within,
)


def gru_reset_after(b: Editor, layer: RecurrentLayer) -> CellGradients:
    """GRU: n = tanh(x Wn + r q), q = h' Rn + bn, h = (1 - z) n + z h', with ' one step before.

    dz = dh (h' - n) z (1 - z)     dn = dh (1 - z) (1 - n^2)     dr = dn q r (1 - r)     dq = dn r
    dh' = dh z + (dz, dr, dq) R

    Every gradient is dh times a factor known beforehand. This is `linear_before_reset=1`.
    """
    z, r, n, q = _gates(b, layer)
    by_z, by_n = _factors(b, layer, z, n)
    by_r = b.op("Mul", b.op("Mul", by_n, q), sigmoid_slope(b, r))
    by_q = b.op("Mul", by_n, r)

    def step(
        b: Editor, dh: ir.Value, others: Values, at: Mapping[str, ir.Value]
    ) -> tuple[Values, Values]:
        gates = b.op("Mul", b.op("Concat", dh, dh, dh, axis=1), at["factors"])
        before = b.op("Add", b.op("Mul", dh, at["z"]), b.op("MatMul", gates, layer.r))
        return [before], [gates, b.op("Mul", dh, at["by_n"])]

    sequences = {
        "factors": within(b, layer, b.op("Concat", by_z, by_r, by_q, axis=2)),
        "by_n": within(b, layer, by_n),
        "z": within(b, layer, z),
    }
    (dh,), (recurrent, dn) = scan_back(b, layer, step, [layer.dy_h], sequences)
    d_zr, _ = _split(b, layer, recurrent)
    gates = b.op("Concat", d_zr, dn, axis=2)
    from_h = GateGradients(recurrent)
    return CellGradients(GateGradients(gates), ((from_h, layer.previous),), dh)


def _gates(b: Editor, layer: RecurrentLayer) -> tuple[ir.Value, ...]:
    """Compute z, r, n and q anew."""
    x_zr, x_n = _split(b, layer, product(b, layer.x, layer.w, layer.wb))
    h_zr, q = _split(b, layer, product(b, layer.previous, layer.r, layer.rb))
    z, r = _zr(b, b.op("Add", x_zr, h_zr))
    return z, r, b.op("Tanh", b.op("Add", x_n, b.op("Mul", r, q))), q


def gru_reset_before(b: Editor, layer: RecurrentLayer) -> CellGradients:
    """GRU: n = tanh(x Wn + s Rn + b), s = r h', h = (1 - z) n + z h', with ' one step before.

    dz = dh (h' - n) z (1 - z)     dn = dh (1 - z) (1 - n^2)     ds = dn Rn     dr = ds h' r (1 - r)
    dh' = dh z + ds r + (dz, dr) R
    """
    x_zr, x_n = _split(b, layer, product(b, layer.x, layer.w, both_biases(b, layer)))
    r_zr, r_n = _split(b, layer, layer.r, axis=0)
    z, r = _zr(b, product(b, layer.previous, r_zr, x_zr))
    s = b.op("Mul", r, layer.previous)
    n = b.op("Tanh", product(b, s, r_n, x_n))
    by_z, by_n = _factors(b, layer, z, n)
    by_r = b.op("Mul", layer.previous, sigmoid_slope(b, r))

    def step(
        b: Editor, dh: ir.Value, others: Values, at: Mapping[str, ir.Value]
    ) -> tuple[Values, Values]:
        dn = b.op("Mul", dh, at["by_n"])
        ds = b.op("MatMul", dn, r_n)
        gates = b.op("Mul", b.op("Concat", dh, ds, axis=1), at["factors"])
        direct = b.op("Add", b.op("Mul", dh, at["z"]), b.op("Mul", ds, at["r"]))
        return [b.op("Add", direct, b.op("MatMul", gates, r_zr))], [gates, dn]

    sequences = {
        "factors": within(b, layer, b.op("Concat", by_z, by_r, axis=2)),
        "by_n": within(b, layer, by_n),
        "z": within(b, layer, z),
        "r": r,
    }
    (dh,), (d_zr, dn) = scan_back(b, layer, step, [layer.dy_h], sequences)
    gates = b.op("Concat", d_zr, dn, axis=2)
    recurrent = ((GateGradients(d_zr), layer.previous), (GateGradients(dn), s))
    return CellGradients(GateGradients(gates), recurrent, dh)


def _split(
    b: Editor, layer: RecurrentLayer, value: ir.Value, axis: int = 2
) -> tuple[ir.Value, ir.Value]:
    """Split what has gates z, r, n along `axis` into that of z and r, and that of n."""
    sizes = [2 * layer.hidden, layer.hidden]
    first, last = b.ops("Split", value, sizes, outputs=2, axis=axis)
    return first, last


def _zr(b: Editor, sums: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Return the gates z and r."""
    z, r = b.ops("Split", b.op("Sigmoid", sums), outputs=2, axis=2, num_outputs=2)
    return z, r


def _factors(
    b: Editor, layer: RecurrentLayer, z: ir.Value, n: ir.Value
) -> tuple[ir.Value, ir.Value]:
    """Return dz / dh = (h' - n) z (1 - z) and dn / dh = (1 - z) (1 - n^2)."""
    by_z = b.op("Mul", b.op("Sub", layer.previous, n), sigmoid_slope(b, z))
    return by_z, b.op("Mul", one_minus(b, z), tanh_slope(b, n))
