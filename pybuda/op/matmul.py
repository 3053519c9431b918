"""Products of matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from .apply import operator


@operator
def Matmul(operandA: Tensor, operandB: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return ab, or ab + bias, over the last two dimensions.

    In the type of a; 8-bit integers give 32-bit ones.
    """
    dtype = torch.int32 if operandA.dtype is torch.int8 else operandA.dtype
    found = torch.matmul(operandA.to(dtype), operandB.to(dtype))
    return found if bias is None else found + bias.to(dtype)


@operator
def SparseMatmul(sparseA: Tensor, denseB: Tensor) -> Tensor:
    """Return ab over the last two dimensions, of a matrix that may be a sparse tensor of torch."""
    dense = sparseA.to_dense() if sparseA.is_sparse else sparseA
    return torch.matmul(dense, denseB.to(dense.dtype))
