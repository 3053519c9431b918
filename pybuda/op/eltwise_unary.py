"""Operators on each element of one tensor."""

from __future__ import annotations

import torch
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.tensor import Tensor

from .apply import Operand, apply

_TINY = 1e-10
"""What `Log` and `Reciprocal` add to their operand."""
_RELUS = ("min", "max")


def Abs(name: str, operandA: Operand) -> Tensor:
    """Return the absolute values."""
    return apply(name, torch.abs, operandA)


def Exp(name: str, operandA: Operand) -> Tensor:
    """Return e to the power of each element."""
    return apply(name, torch.exp, operandA)


def Log(name: str, operandA: Operand) -> Tensor:
    """Return log(x + 1e-10), as the original does."""
    return apply(name, lambda x: torch.log(x + _TINY), operandA)


def Sqrt(name: str, operandA: Operand) -> Tensor:
    """Return the square roots."""
    return apply(name, torch.sqrt, operandA)


def Reciprocal(name: str, operandA: Operand) -> Tensor:
    """Return 1 / (x + 1e-10), as the original does."""
    return apply(name, lambda x: torch.reciprocal(x + _TINY), operandA)


def Sigmoid(name: str, operandA: Operand) -> Tensor:
    """Return 1 / (1 + e^-x)."""
    return apply(name, torch.sigmoid, operandA)


def Tanh(name: str, operandA: Operand) -> Tensor:
    """Return the hyperbolic tangents."""
    return apply(name, torch.tanh, operandA)


def Sine(name: str, operandA: Operand) -> Tensor:
    """Return the sines; angles are in radians."""
    return apply(name, torch.sin, operandA)


def Cosine(name: str, operandA: Operand) -> Tensor:
    """Return the cosines; angles are in radians."""
    return apply(name, torch.cos, operandA)


def Pow(name: str, operandA: Operand, exponent: float) -> Tensor:
    """Return each element to the power of `exponent`."""
    return apply(name, lambda x: torch.pow(x, exponent), operandA)


def Relu(name: str, operandA: Operand, threshold: float = 0.0, mode: str = "min") -> Tensor:
    """Return x where it is at least `threshold`, else 0; `max`: what is above it is cut to it.

    Raises `PyBudaError` for another mode.
    """
    if mode not in _RELUS:
        raise PyBudaError(f"Relu: '{mode}' is no mode; there are {' and '.join(_RELUS)}")
    if mode == "max":
        return apply(name, lambda x: functional.relu(torch.clamp(x, max=threshold)), operandA)
    if threshold == 0.0:
        return apply(name, functional.relu, operandA)
    return apply(name, lambda x: x * (x >= threshold).to(x.dtype), operandA)


def LeakyRelu(name: str, operandA: Operand, alpha: float) -> Tensor:
    """Return x where it is above 0, else `alpha` times x."""
    return apply(name, lambda x: functional.leaky_relu(x, alpha), operandA)


def Gelu(name: str, operandA: Operand, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution at x; `tanh` approximates it."""
    return apply(name, lambda x: functional.gelu(x, approximate=approximate), operandA)


def Clip(name: str, operandA: Operand, min: float, max: float) -> Tensor:
    """Return the elements, cut to `min` and `max`."""
    return apply(name, lambda x: torch.clamp(x, min, max), operandA)


def LogicalNot(name: str, operandA: Operand) -> Tensor:
    """Return 1 where an element is 0, else 0."""
    return apply(name, lambda x: torch.logical_not(x).to(x.dtype), operandA)


def CumSum(name: str, operandA: Operand, axis: int) -> Tensor:
    """Return the sums of all elements up to each along `axis`."""
    return apply(name, lambda x: torch.cumsum(x, axis, dtype=x.dtype), operandA)


def Argmax(name: str, operandA: Operand, dim: int | None = None) -> Tensor:
    """Return where the largest elements along `dim` are, or the largest of all, in x's type.

    The dimension stays, with size 1; without `dim` all do.
    """

    def largest(x: torch.Tensor) -> torch.Tensor:
        if dim is None:
            return torch.argmax(x).reshape([1] * x.ndim).to(x.dtype)
        return torch.argmax(x, dim, keepdim=True).to(x.dtype)

    return apply(name, largest, operandA)


def Identity(
    name: str, operandA: Operand, unsqueeze: str | None = None, unsqueeze_dim: int | None = None
) -> Tensor:
    """Return the tensor as it is; `unsqueeze` puts a dimension of size 1 at `unsqueeze_dim`."""
    if unsqueeze is None:
        return apply(name, torch.clone, operandA)
    if unsqueeze_dim is None:
        raise PyBudaError("Identity: unsqueeze needs unsqueeze_dim, the place of the dimension")
    return apply(name, lambda x: torch.unsqueeze(x, unsqueeze_dim), operandA)


def Buffer(name: str, operandA: Operand) -> Tensor:
    """Return the tensor as it is."""
    return apply(name, torch.clone, operandA)
