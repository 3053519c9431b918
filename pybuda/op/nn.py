"""Softmax and normalisation, and modules of one operator."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybuda.tensor import Tensor

from .apply import Operand, apply
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


def Softmax(name: str, operandA: Operand, *, dim: int, stable: bool = True) -> Tensor:
    """Return e^x over its sum along `dim`. It is the stable form whether or not it is asked for."""
    return apply(name, lambda x: functional.softmax(x, dim), operandA)


def LogSoftmax(name: str, operandA: Operand, *, dim: int, stable: bool = True) -> Tensor:
    """Return the logarithm of `Softmax`."""
    return apply(name, lambda x: functional.log_softmax(x, dim), operandA)


def Layernorm(
    name: str,
    operandA: Operand,
    weights: Operand,
    bias: Operand,
    dim: int = -1,
    epsilon: float = 1e-05,
) -> Tensor:
    """Return (x - mean) / sqrt(variance + epsilon) * weights + bias, over dimension `dim`."""

    def normalized(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        if dim in (-1, x.ndim - 1) and w.numel() == b.numel() == x.shape[-1]:
            return functional.layer_norm(x, x.shape[-1:], w.reshape(-1), b.reshape(-1), epsilon)
        mean = torch.mean(x, dim, keepdim=True)
        variance = torch.mean((x - mean) ** 2, dim, keepdim=True)
        return (x - mean) / torch.sqrt(variance + epsilon) * w + b

    return apply(name, normalized, operandA, weights, bias)


def Batchnorm(
    name: str,
    operandA: Operand,
    weights: Operand,
    bias: Operand,
    running_mean: Operand,
    running_var: Operand,
    epsilon: float = 1e-05,
) -> Tensor:
    """Return (x - mean) / (sqrt(variance + epsilon) + 1e-10) * weights + bias for each channel.

    x is (N, C, H, W); the others have one number for each channel. 1e-10 is `Reciprocal`'s.
    """

    def normalized(x: torch.Tensor, *statistics: torch.Tensor) -> torch.Tensor:
        w, b, mean, variance = (item.reshape(-1, 1, 1) for item in statistics)
        return (x - mean) * (1 / (torch.sqrt(variance + epsilon) + 1e-10)) * w + b

    return apply(name, normalized, operandA, weights, bias, running_mean, running_var)
