"""Products over axes, which the exporter does not know, and sums with products of matrices.

Those of whole numbers it gives to an operator that onnxruntime has for others alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_addmm
from onnxscript.function_libs.torch_lib.ops.nn import aten_linear

from .operators import constant, number, op

_AS_IT_IS = -1
_ELLIPSIS = "..."
_WHOLE = frozenset(
    getattr(ir.DataType, name) for name in ("INT8", "INT16", "INT32", "INT64", "UINT8")
)


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


def einsum(
    equation: str, tensors: Sequence[ir.Value], path: Sequence[int] | None = None
) -> ir.Value:
    """Return the sum of products of `tensors`; only in PyTorch an ellipsis may have fewer axes."""
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    ellipses = [term.find(_ELLIPSIS) for term in terms]
    ranks = [0 if x.shape is None else len(x.shape) for x in tensors]
    axes = [rank - len(term) + len(_ELLIPSIS) for rank, term in zip(ranks, terms, strict=True)]
    most = max((n for n, at in zip(axes, ellipses, strict=True) if at >= 0), default=0)
    aligned = [
        op.Unsqueeze(x, constant(np.arange(at, at + most - n))) if at >= 0 and n < most else x
        for x, n, at in zip(tensors, axes, ellipses, strict=True)
    ]
    return op.Einsum(*aligned, equation=equation)


def linear(x: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    """Return x @ weight^T + bias. Shapes: `x` [..., K], `weight` [N, K] or [K], `bias` [N]."""
    if not _WHOLE.issuperset((x.dtype, weight.dtype)):
        result: ir.Value = aten_linear(x, weight, bias)
        return result
    found = op.MatMul(x, op.Transpose(weight))
    return found if bias is None else op.Add(found, bias)


def addmm(
    x: ir.Value, left: ir.Value, right: ir.Value, beta: float = 1.0, alpha: float = 1.0
) -> ir.Value:
    """Return beta * x + alpha * left @ right. Shapes: `x` broadcast to [M, N], [M, K], [K, N]."""
    if not _WHOLE.issuperset((left.dtype, right.dtype)):
        result: ir.Value = aten_addmm(x, left, right, beta, alpha)
        return result
    found = op.Mul(op.MatMul(left, right), number(alpha, left))
    return op.Add(found, op.Mul(x, number(beta, x)))
