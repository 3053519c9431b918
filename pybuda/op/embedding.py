"""Look-up of rows, and writing them."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply


def Embedding(name: str, embedding_table: Operand, operandA: Operand) -> Tensor:
    """Return the row of `embedding_table` at each of the integers of `operandA`."""
    return apply(name, lambda table, at: functional.embedding(at, table), embedding_table, operandA)


def AdvIndex(name: str, operandA: Operand, operandB: Operand, dim: int = 0) -> Tensor:
    """Return the rows of a that the integers of b name; (1, n) of them give a dimension 1 before.

    Raises `PyBudaError` for another dimension than 0, which is what the original has.
    """
    if dim != 0:
        raise PyBudaError(f"AdvIndex: dimension {dim} came; 0 is supported")

    def taken(x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        rows = torch.index_select(x, 0, at.reshape(-1))
        return rows.unsqueeze(0) if at.ndim > 1 else rows

    return apply(name, taken, operandA, operandB)


def IndexCopy(name: str, operandA: Operand, index: Operand, value: Operand, dim: int) -> Tensor:
    """Return a with the slices of `value` at the places `index` of dimension `dim`."""

    def copied(x: torch.Tensor, at: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        return torch.index_copy(x, dim, at.to(torch.int64), new.to(x.dtype))

    return apply(name, copied, operandA, index, value)
