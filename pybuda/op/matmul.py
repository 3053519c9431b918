"""Products of matrices."""

from __future__ import annotations

import torch

from pybuda.tensor import Tensor

from .apply import Operand, apply


def Matmul(name: str, operandA: Operand, operandB: Operand, bias: Operand | None = None) -> Tensor:
    """Return ab, or ab + bias, over the last two dimensions.

    In the type of a; 8-bit integers give 32-bit ones.
    """

    def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> torch.Tensor:
        dtype = torch.int32 if a.dtype is torch.int8 else a.dtype
        found = torch.matmul(a.to(dtype), b.to(dtype))
        return found if c is None else found + c.to(dtype)

    return apply(name, product, operandA, operandB, bias)


def SparseMatmul(name: str, sparseA: Tensor, denseB: Operand) -> Tensor:
    """Return ab over the last two dimensions, of a matrix that may be a sparse tensor of torch."""
    dense = sparseA.value()
    return Matmul(name, Tensor(dense.to_dense() if dense.is_sparse else dense), denseB)
