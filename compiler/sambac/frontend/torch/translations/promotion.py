"""Operands of several types: what PyTorch computes in, where the exporter does not see to it.

It casts the operands of the operators it has a list of; that has neither `torch.divide` nor the
functions of `torch.special`.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir
import torch
from onnx_ir import tensor_adapters
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND as KINDS
from torch._prims_common import elementwise_dtypes

from .operators import op, rank

Translation = Callable[..., ir.Value]


def common(translate: Translation) -> Translation:
    """Return `translate` for operands that first get their common type."""
    return _promoted(translate, KINDS.DEFAULT)


def floating(translate: Translation) -> Translation:
    """Return `translate` for operands that first get their common floating-point type."""
    return _promoted(translate, KINDS.INT_TO_FLOAT)


def _promoted(translate: Translation, kind: KINDS) -> Translation:
    def call(*operands: ir.Value | float | None, **settings: object) -> ir.Value:
        given = [_example(operand) for operand in operands if operand is not None]
        _, wanted = elementwise_dtypes(*given, type_promotion_kind=kind)
        dtype = tensor_adapters.from_torch_dtype(wanted)
        cast = [_cast(o, dtype) if isinstance(o, ir.Value) else o for o in operands]
        return translate(*cast, **settings)

    return call


def _example(operand: ir.Value | float) -> torch.Tensor | float:
    """Return what has the type and the rank of `operand`."""
    if not isinstance(operand, ir.Value):
        return operand
    assert operand.dtype is not None
    dtype = tensor_adapters.to_torch_dtype(operand.dtype)
    return torch.empty([1] * rank(operand), dtype=dtype, device="meta")


def _cast(value: ir.Value, dtype: ir.DataType) -> ir.Value:
    if value.dtype == dtype:
        return value
    result = op.Cast(value, to=dtype)
    result.dtype, result.shape = dtype, value.shape
    return result
