"""Operators that reduce a dimension, which stays with size 1."""

from __future__ import annotations

import torch

from pybuda.tensor import Tensor

from .apply import Operand, apply


def ReduceSum(name: str, operandA: Operand, dim: int) -> Tensor:
    """Return the sums along `dim`."""
    return apply(name, lambda x: torch.sum(x, dim, keepdim=True, dtype=x.dtype), operandA)


def ReduceAvg(name: str, operandA: Operand, dim: int) -> Tensor:
    """Return the means along `dim`."""
    return apply(name, lambda x: torch.mean(x, dim, keepdim=True), operandA)


def ReduceMax(name: str, operandA: Operand, dim: int) -> Tensor:
    """Return the largest elements along `dim`."""
    return apply(name, lambda x: torch.max(x, dim, keepdim=True).values, operandA)
