"""Operators on pairs of elements of two tensors, which broadcast as in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from pybuda.tensor import typed

from .apply import Operator, named, operator

_Pairs = Callable[[Tensor, Tensor], Tensor]


def _alike(name: str, says: str, function: _Pairs) -> Operator:
    """Return the operator that applies `function` to operands of one type."""

    def formula(operandA: Tensor, operandB: Tensor) -> Tensor:
        return function(*typed(operandA, operandB))

    return named(name, says, formula)


def _told(name: str, says: str, function: _Pairs) -> Operator:
    """Return the operator that compares, and gives truths in the type of its first operand."""

    def formula(operandA: Tensor, operandB: Tensor) -> Tensor:
        left, right = typed(operandA, operandB)
        return function(left, right).to(left.dtype)

    return named(name, f"Return 1 where {says}, else 0, in the type of a.", formula)


Add = _alike("Add", "Return a + b.", torch.add)
Subtract = _alike("Subtract", "Return a - b.", torch.sub)
Multiply = _alike("Multiply", "Return a * b.", torch.mul)
Divide = _alike("Divide", "Return a / b.", torch.div)
Max = _alike("Max", "Return the larger of both.", torch.maximum)
Min = _alike("Min", "Return the smaller of both.", torch.minimum)
Power = _alike("Power", "Return a to the power of b.", torch.pow)
Heaviside = _alike("Heaviside", "Return 0 where a < 0, 1 where a > 0, else b.", torch.heaviside)

Greater = _told("Greater", "a > b", torch.gt)
GreaterEqual = _told("GreaterEqual", "a >= b", torch.ge)
Less = _told("Less", "a < b", torch.lt)
LessEqual = _told("LessEqual", "a <= b", torch.le)
Equal = _told("Equal", "both are equal", torch.eq)
NotEqual = _told("NotEqual", "both differ", torch.ne)
LogicalAnd = _told("LogicalAnd", "neither is 0", torch.logical_and)


@operator
def Where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Return x where `condition` is not 0, else y."""
    return torch.where(condition != 0, x, y.to(x.dtype))


@operator
def BinaryStack(operandA: Tensor, operandB: Tensor, dim: int) -> Tensor:
    """Return a tensor twice as long in `dim`, whose elements there are of a and b in turn."""
    place = dim % operandA.ndim
    shape = [size * (2 if index == place else 1) for index, size in enumerate(operandA.shape)]
    return torch.stack((operandA, operandB), place + 1).reshape(shape)
