"""Random masks: all of them become Dropout, whose masks a training program can make again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .operators import constant, op, several, sizes


def bernoulli(x: ir.Value, p: float = 0.5) -> ir.Value:
    """Ones with probability p in the shape of `x`, else zeros: what dropout(1, 1 - p) keeps.

    Spatial and alpha dropout and stochastic depth are written with it. dropout(1, 1 - p) * p
    would be the same but for rounding, and a number that is nearly one counts as none.
    """
    assert x.dtype is not None
    ones = np.ones(sizes(x), x.dtype.numpy())
    if p in (0.0, 1.0):
        return constant(ones * x.dtype.numpy().type(p))
    _, kept = several.Dropout(constant(ones), 1.0 - p, constant(np.asarray(True)))
    return op.Cast(kept, to=x.dtype)


def dropped(x: ir.Value, p: float) -> ir.Value:
    """Return `x` with elements zeroed at rate `p`, and the others scaled by 1 / (1 - p)."""
    return op.Dropout(x, p, constant(np.asarray(True)))
