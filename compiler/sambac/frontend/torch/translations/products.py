"""Products over axes, which the exporter makes of running products and does not know itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from .operators import constant, op

_AS_IT_IS = -1


def product(
    x: ir.Value, dims: Sequence[int] | None = None, output_dtype: int = _AS_IT_IS
) -> ir.Value:
    """Return the product over the axes `dims`, which go, or over all; `output_dtype` is ONNX's."""
    axes = None if dims is None else constant(np.asarray(dims, np.int64))
    result = op.ReduceProd(x, axes, keepdims=0)
    return result if output_dtype == _AS_IT_IS else op.Cast(result, to=output_dtype)
