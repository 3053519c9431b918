"""Random masks: all of them become Dropout, whose masks a training program can make again."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from .operators import constant, op, sizes


def bernoulli(x: ir.Value, p: float = 0.5) -> ir.Value:
    """Ones with probability p in the shape of `x`, else zeros: dropout(1, 1 - p) * p.

    Spatial and alpha dropout and stochastic depth are written with it.
    """
    assert x.dtype is not None
    ones = np.ones(sizes(x), x.dtype.numpy())
    if p in (0.0, 1.0):
        return constant(ones * x.dtype.numpy().type(p))
    return op.Mul(dropped(constant(ones), 1.0 - p), p)


def dropped(x: ir.Value, p: float) -> ir.Value:
    """Return `x` with elements zeroed at rate `p`, and the others scaled by 1 / (1 - p)."""
    return op.Dropout(x, p, constant(np.asarray(True)))
