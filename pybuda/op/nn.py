"""Softmax and normalisation, and modules of one operator."""

from __future__ import annotations

import torch
from torch.nn import functional

from .apply import operator
from .modules import (
    AvgPool2dModule,
    Conv2dModule,
    ConvTranspose2dModule,
    Linear,
    MaxPool1dModule,
    MaxPool2dModule,
    SparseMatmulModule,
)

__all__ = [
    "AvgPool2dModule", "Batchnorm", "Conv2dModule", "ConvTranspose2dModule", "Layernorm", "Linear",
    "LogSoftmax", "MaxPool1dModule", "MaxPool2dModule", "Softmax", "SparseMatmulModule",
]  # fmt: skip


@operator
def Softmax(operandA: torch.Tensor, *, dim: int, stable: bool = True) -> torch.Tensor:
    """Return e^x over its sum along `dim`. It is the stable form whether or not it is asked for."""
    return functional.softmax(operandA, dim)


@operator
def LogSoftmax(operandA: torch.Tensor, *, dim: int, stable: bool = True) -> torch.Tensor:
    """Return the logarithm of `Softmax`."""
    return functional.log_softmax(operandA, dim)


@operator
def Layernorm(
    operandA: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    dim: int = -1,
    epsilon: float = 1e-05,
) -> torch.Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * weights + bias, over dimension `dim`."""
    x, size = operandA, operandA.shape[-1:]
    if dim in (-1, x.ndim - 1) and weights.numel() == bias.numel() == x.shape[-1]:
        return functional.layer_norm(x, size, weights.reshape(-1), bias.reshape(-1), epsilon)
    mean = torch.mean(x, dim, keepdim=True)
    variance = torch.mean((x - mean) ** 2, dim, keepdim=True)
    return (x - mean) / torch.sqrt(variance + epsilon) * weights + bias


@operator
def Batchnorm(
    operandA: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    epsilon: float = 1e-05,
) -> torch.Tensor:
    """Return (x - mean) / (sqrt(variance + epsilon) + 1e-10) * weights + bias for each channel.

    x is (N, C, H, W); the others have one number for each channel. 1e-10 is `Reciprocal`'s.
    """
    statistics = (weights, bias, running_mean, running_var)
    w, b, mean, variance = (item.reshape(-1, 1, 1) for item in statistics)
    return (operandA - mean) * (1 / (torch.sqrt(variance + epsilon) + 1e-10)) * w + b
