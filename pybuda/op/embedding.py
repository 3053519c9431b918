"""Look-up of rows."""

from __future__ import annotations

from torch.nn import functional

from pybuda.tensor import Tensor

from .apply import Operand, apply


def Embedding(name: str, embedding_table: Operand, operandA: Operand) -> Tensor:
    """Return the row of `embedding_table` at each of the integers of `operandA`."""
    return apply(name, lambda table, at: functional.embedding(at, table), embedding_table, operandA)
