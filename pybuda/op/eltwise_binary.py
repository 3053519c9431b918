"""Operators on pairs of elements of two tensors, which broadcast as in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from pybuda.tensor import Tensor, typed

from .apply import Operand, apply


def Add(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return a + b."""
    return _alike(name, torch.add, operandA, operandB)


def Subtract(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return a - b."""
    return _alike(name, torch.sub, operandA, operandB)


def Multiply(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return a * b."""
    return _alike(name, torch.mul, operandA, operandB)


def Divide(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return a / b."""
    return _alike(name, torch.div, operandA, operandB)


def Max(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return the larger of both."""
    return _alike(name, torch.maximum, operandA, operandB)


def Min(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return the smaller of both."""
    return _alike(name, torch.minimum, operandA, operandB)


def Power(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return a to the power of b."""
    return _alike(name, torch.pow, operandA, operandB)


def Heaviside(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 0 where a is below 0, 1 where it is above, and b where it is 0."""
    return _alike(name, torch.heaviside, operandA, operandB)


def Greater(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where a > b, else 0, in the type of a."""
    return _told(name, torch.gt, operandA, operandB)


def GreaterEqual(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where a >= b, else 0, in the type of a."""
    return _told(name, torch.ge, operandA, operandB)


def Less(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where a < b, else 0, in the type of a."""
    return _told(name, torch.lt, operandA, operandB)


def LessEqual(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where a <= b, else 0, in the type of a."""
    return _told(name, torch.le, operandA, operandB)


def Equal(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where both are equal, else 0, in the type of a."""
    return _told(name, torch.eq, operandA, operandB)


def NotEqual(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where both differ, else 0, in the type of a."""
    return _told(name, torch.ne, operandA, operandB)


def LogicalAnd(name: str, operandA: Operand, operandB: Operand) -> Tensor:
    """Return 1 where neither is 0, else 0, in the type of a."""
    return _told(name, torch.logical_and, operandA, operandB)


def Where(name: str, condition: Operand, x: Operand, y: Operand) -> Tensor:
    """Return x where `condition` is not 0, else y."""
    return apply(name, lambda c, a, b: torch.where(c != 0, a, b.to(a.dtype)), condition, x, y)


def BinaryStack(name: str, operandA: Operand, operandB: Operand, dim: int) -> Tensor:
    """Return a tensor twice as long in `dim`, whose elements there are of a and b in turn."""

    def stacked(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        place = dim % a.ndim
        shape = [size * (2 if index == place else 1) for index, size in enumerate(a.shape)]
        return torch.stack((a, b), place + 1).reshape(shape)

    return apply(name, stacked, operandA, operandB)


_Pairs = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _alike(name: str, function: _Pairs, a: Operand, b: Operand) -> Tensor:
    """Apply `function` to operands of one type."""
    return apply(name, lambda left, right: function(*typed(left, right)), a, b)


def _told(name: str, function: _Pairs, a: Operand, b: Operand) -> Tensor:
    """Apply a comparison, and return its truths in the type of the first operand."""

    def compared(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = typed(left, right)
        return function(left, right).to(left.dtype)

    return apply(name, compared, a, b)
