"""Look-up of rows, and writing them."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError

from .apply import operator


@operator
def Embedding(embedding_table: torch.Tensor, operandA: torch.Tensor) -> torch.Tensor:
    """Return the row of `embedding_table` at each of the integers of `operandA`."""
    return functional.embedding(operandA, embedding_table)


@operator
def AdvIndex(operandA: torch.Tensor, operandB: torch.Tensor, dim: int = 0) -> torch.Tensor:
    """Return the rows of a that the integers of b name; (1, n) of them give a dimension 1 before.

    Raises `PyBudaError` for another dimension than 0, which is what the original has.
    """
    if dim != 0:
        raise PyBudaError(f"AdvIndex: dimension {dim} came; 0 is supported")
    rows = torch.index_select(operandA, 0, operandB.reshape(-1))
    return rows.unsqueeze(0) if operandB.ndim > 1 else rows


@operator
def IndexCopy(
    operandA: torch.Tensor, index: torch.Tensor, value: torch.Tensor, dim: int
) -> torch.Tensor:
    """Return a with the slices of `value` at the places `index` of dimension `dim`."""
    return torch.index_copy(operandA, dim, index.to(torch.int64), value.to(operandA.dtype))
