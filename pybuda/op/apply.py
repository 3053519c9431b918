"""How an operator is applied: to what, and under which name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch

from pybuda.errors import PyBudaError
from pybuda.parameter import Parameter
from pybuda.tensor import Tensor

Operand: TypeAlias = Tensor | Parameter


def apply(name: str, evaluate: Callable[..., torch.Tensor], *operands: Operand | None) -> Tensor:
    """Return what `evaluate` gives for the values of `operands`; left out ones are None.

    While a module is recorded for the device these values are those of the graph, so that one
    formula is what an operator does everywhere. `name` is the operator's, or empty.
    """
    if not isinstance(name, str):
        raise PyBudaError(
            f"a {type(name).__name__} came as the name of an operator; operators take a name "
            "first, which may be empty"
        )
    return Tensor(evaluate(*(value_of(operand) for operand in operands)))


def value_of(operand: Operand | None) -> torch.Tensor | None:
    """Return the torch tensor of an operand. Raises `PyBudaError` for what is none."""
    if operand is None:
        return None
    if not isinstance(operand, Tensor | Parameter):
        raise PyBudaError(
            f"a {type(operand).__name__} came as an operand; a pybuda Tensor or Parameter was "
            "expected (Tensor.create_from_torch makes one)"
        )
    return operand.value()
