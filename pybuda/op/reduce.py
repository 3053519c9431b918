"""Operators that reduce a dimension, which stays, mostly with size 1."""

from __future__ import annotations

import torch

from pybuda.errors import PyBudaError

from .apply import operator


@operator
def ReduceSum(operandA: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the sums along `dim`."""
    return torch.sum(operandA, dim, keepdim=True, dtype=operandA.dtype)


@operator
def ReduceAvg(operandA: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the means along `dim`."""
    return torch.mean(operandA, dim, keepdim=True)


@operator
def ReduceMax(operandA: torch.Tensor, dim: int) -> torch.Tensor:
    """Return the largest elements along `dim`."""
    return torch.max(operandA, dim, keepdim=True).values


@operator
def GroupedReduceAvg(
    operandA: torch.Tensor, dim: int, groups: int, keep_dims: bool = False
) -> torch.Tensor:
    """Return the means of `groups` equal parts of `dim`, whose size they become.

    With `keep_dims` the size stays: each element is the mean of its group.
    """
    size, at = operandA.shape[dim], dim % operandA.ndim
    if groups < 1 or size % groups:
        raise PyBudaError(f"GroupedReduceAvg: {size} elements make no {groups} equal groups")
    shape = (*operandA.shape[:at], groups, size // groups, *operandA.shape[at + 1 :])
    means = torch.mean(torch.reshape(operandA, shape), at + 1)
    return torch.repeat_interleave(means, size // groups, at) if keep_dims else means
