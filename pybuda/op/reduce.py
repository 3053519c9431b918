"""Operators that reduce a dimension, which stays, mostly with size 1."""

from __future__ import annotations

import torch

from pybuda.errors import PyBudaError
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


def GroupedReduceAvg(
    name: str, operandA: Operand, dim: int, groups: int, keep_dims: bool = False
) -> Tensor:
    """Return the means of `groups` equal parts of `dim`, whose size they become.

    With `keep_dims` the size stays: each element is the mean of its group.
    """

    def averaged(x: torch.Tensor) -> torch.Tensor:
        size = x.shape[dim]
        if groups < 1 or size % groups:
            raise PyBudaError(f"GroupedReduceAvg: {size} elements make no {groups} equal groups")
        at = dim % x.ndim
        shape = (*x.shape[:at], groups, size // groups, *x.shape[at + 1 :])
        means = torch.mean(torch.reshape(x, shape), at + 1)
        return torch.repeat_interleave(means, size // groups, at) if keep_dims else means

    return apply(name, averaged, operandA)
