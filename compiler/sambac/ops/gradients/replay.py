"""The gradient of any operator that only moves elements: let it move their positions.

    p = f(0, 1, 2 ...)        the position in x that each element of y comes from
    dx[p[j]] += dy[j]

For moves whose parameters are known only at run time; others have cheaper formulas.
"""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .rules import Point, cut, reshape, zeros


def replayed(b: Editor, at: Point, parameters: tuple[ir.Value | None, ...] = ()) -> ir.Value:
    """Return dx for the operator `at`, a move of its first input.

    `parameters` are its other inputs, by default those of the node. A move that creates elements
    must give them the position behind the last; what they would add is dropped.
    """
    shape = shape_of(at.x)
    count = prod(shape)
    positions = b.op("Range", np.array(0), np.array(count), np.array(1))
    moved = b.op(
        at.node.op_type,
        reshape(b, positions, shape),
        *(parameters or at.node.inputs[1:]),
        **{name: attribute.value for name, attribute in at.node.attributes.items()},
    )
    flat = [b.op("Reshape", value, [-1]) for value in (moved, at.dy)]
    table = zeros(b, at.dy.dtype, (count + 1,))
    summed = b.op("ScatterElements", table, *flat, axis=0, reduction="add")
    return reshape(b, cut(b, summed, {0: (0, count)}), shape)
