"""Products over axes, which the exporter does not know, and sums with products of matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, number, op

_AS_IT_IS = -1


def product(
    x: ir.Value, dims: Sequence[int] | None = None, output_dtype: int = _AS_IT_IS
) -> ir.Value:
    """Return the product over the axes `dims`, which go, or over all; `output_dtype` is ONNX's."""
    axes = None if dims is None else constant(np.asarray(dims, np.int64))
    result = op.ReduceProd(x, axes, keepdims=0)
    return result if output_dtype == _AS_IT_IS else op.Cast(result, to=output_dtype)


def added(translate: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Return `translate`, of beta * x + alpha * left @ right, for which 0 * x is 0 for any x."""

    def call(
        x: ir.Value, left: ir.Value, right: ir.Value, beta: float = 1.0, alpha: float = 1.0
    ) -> ir.Value:
        return translate(number(0.0, left) if beta == 0 else x, left, right, beta, alpha)

    return call
