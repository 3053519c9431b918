"""Operators on each element of one tensor, and constants."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from pybuda.errors import PyBudaError
from pybuda.recording import recording

from .apply import each, operator

_TINY = 1e-10
"""What `Log` and `Reciprocal` add to their operand."""
_RELUS = ("min", "max")


Abs = each("Abs", "Return the absolute values.", torch.abs)
Exp = each("Exp", "Return e to the power of each element.", torch.exp)
Log = each("Log", "Return log(x + 1e-10), as the original does.", lambda x: torch.log(x + _TINY))
Sqrt = each("Sqrt", "Return the square roots.", torch.sqrt)
Reciprocal = each(
    "Reciprocal",
    "Return 1 / (x + 1e-10), as the original does.",
    lambda x: torch.reciprocal(x + _TINY),
)
Sigmoid = each("Sigmoid", "Return 1 / (1 + e^-x).", torch.sigmoid)
Tanh = each("Tanh", "Return the hyperbolic tangents.", torch.tanh)
Sine = each("Sine", "Return the sines; angles are in radians.", torch.sin)
Cosine = each("Cosine", "Return the cosines; angles are in radians.", torch.cos)
LogicalNot = each(
    "LogicalNot",
    "Return 1 where an element is 0, else 0.",
    lambda x: torch.logical_not(x).to(x.dtype),
)
Buffer = each("Buffer", "Return the tensor as it is.", torch.clone)
Pow = each("Pow", "Return each element to the power of `exponent`.", torch.pow, exponent="float")
Clip = each("Clip", "Return x, cut to `min` and `max`.", torch.clamp, min="float", max="float")
LeakyRelu = each(
    "LeakyRelu",
    "Return x where it is above 0, else `alpha` times x.",
    functional.leaky_relu,
    alpha="float",
)
CumSum = each(
    "CumSum",
    "Return the sums of all elements up to each along `axis`.",
    lambda x, axis: torch.cumsum(x, axis, dtype=x.dtype),
    axis="int",
)


@operator
def Relu(operandA: Tensor, threshold: float = 0.0, mode: str = "min") -> Tensor:
    """Return x where it is at least `threshold`, else 0; `max`: what is above it is cut to it.

    Raises `PyBudaError` for another mode.
    """
    if mode not in _RELUS:
        raise PyBudaError(f"Relu: '{mode}' is no mode; there are {' and '.join(_RELUS)}")
    if mode == "max":
        return functional.relu(torch.clamp(operandA, max=threshold))
    if threshold == 0.0:
        return functional.relu(operandA)
    return operandA * (operandA >= threshold).to(operandA.dtype)


@operator
def Gelu(operandA: Tensor, approximate: str = "none") -> Tensor:
    """Return x times the normal distribution at x; `tanh` approximates it."""
    return functional.gelu(operandA, approximate=approximate)


@operator
def Argmax(operandA: Tensor, dim: int | None = None) -> Tensor:
    """Return where the largest elements along `dim` are, or the largest of all, in x's type.

    The dimension stays, with size 1; without `dim` all do.
    """
    if dim is None:
        return torch.argmax(operandA).reshape([1] * operandA.ndim).to(operandA.dtype)
    return torch.argmax(operandA, dim, keepdim=True).to(operandA.dtype)


@operator
def Identity(
    operandA: Tensor, unsqueeze: str | None = None, unsqueeze_dim: int | None = None
) -> Tensor:
    """Return the tensor as it is; `unsqueeze` puts a dimension of size 1 at `unsqueeze_dim`."""
    if unsqueeze is None:
        return torch.clone(operandA)
    if unsqueeze_dim is None:
        raise PyBudaError("Identity: unsqueeze needs unsqueeze_dim, the place of the dimension")
    return torch.unsqueeze(operandA, unsqueeze_dim)


@operator
def Dropout(operandA: Tensor, p: float = 0.5, training: bool = True, seed: int = 0) -> Tensor:
    """Return the elements, of which training drops a share `p` and scales the others up.

    Without `training`, and in inference, nothing is dropped. `seed` is taken: the device draws
    from a seed of its own.
    """
    if not 0 <= p < 1:
        raise PyBudaError(f"Dropout: p is {p}; a share from 0 to below 1 was expected")
    return functional.dropout(operandA, p, training and recording().training)


@operator
def Constant(*, constant: float) -> Tensor:
    """Return a tensor of one element."""
    return torch.tensor([constant], dtype=torch.float32)
