"""Operators that reduce a dimension, which stays, mostly with size 1."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pybuda.errors import PyBudaError

from .apply import Operator, named, operator


def _along(name: str, says: str, function: Callable[..., Tensor]) -> Operator:
    """Return the operator that applies `function` along a dimension, which stays with size 1."""

    def formula(operandA: Tensor, dim: int) -> Tensor:
        return function(operandA, dim, keepdim=True).to(operandA.dtype)

    return named(name, f"Return {says} along `dim`.", formula)


ReduceSum = _along("ReduceSum", "the sums", torch.sum)
ReduceAvg = _along("ReduceAvg", "the means", torch.mean)
ReduceMax = _along(
    "ReduceMax",
    "the largest elements",
    lambda x, dim, keepdim: torch.max(x, dim, keepdim=keepdim).values,
)


@operator
def GroupedReduceAvg(operandA: Tensor, dim: int, groups: int, keep_dims: bool = False) -> Tensor:
    """Return the means of `groups` equal parts of `dim`, whose size they become.

    With `keep_dims` the size stays: each element is the mean of its group.
    """
    size, at = operandA.shape[dim], dim % operandA.ndim
    if groups < 1 or size % groups:
        raise PyBudaError(f"GroupedReduceAvg: {size} elements make no {groups} equal groups")
    shape = (*operandA.shape[:at], groups, size // groups, *operandA.shape[at + 1 :])
    means = torch.mean(torch.reshape(operandA, shape), at + 1)
    return torch.repeat_interleave(means, size // groups, at) if keep_dims else means
