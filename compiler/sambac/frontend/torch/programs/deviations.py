"""Standard deviations beside means, in all their forms.

The exporter cannot make one type of the types of an operator with two results, and PyTorch's own
decomposition is the root of a variance, which is infinitely steep where all elements are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch

_Pair = tuple[torch.Tensor, torch.Tensor]


def std_mean_correction(
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> _Pair:
    """The standard deviation over the axes `dim`, all of them if None, and the mean."""
    axes = list(dim or range(x.dim()))
    deviation = torch.std(x, axes, correction=correction, keepdim=keepdim)
    return deviation, torch.mean(x, axes, keepdim=keepdim)


def std_mean_dim(
    x: torch.Tensor, dim: Sequence[int] | None, unbiased: bool = True, keepdim: bool = False
) -> _Pair:
    """The same, divided by one less than the number of elements if `unbiased`."""
    return std_mean_correction(x, dim, correction=float(unbiased), keepdim=keepdim)


def std_mean(x: torch.Tensor, unbiased: bool = True) -> _Pair:
    """The same of all elements."""
    return std_mean_correction(x, correction=float(unbiased))


DEVIATIONS: Mapping[Callable[..., object], Callable[..., object]] = MappingProxyType({
    torch.ops.aten.std_mean.correction: std_mean_correction,
    torch.ops.aten.std_mean.default: std_mean,
    torch.ops.aten.std_mean.dim: std_mean_dim,
})  # fmt: skip
