"""How an operator is made of its formula, and applied: to what, and under which name."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import TypeAlias

import torch

from pef.arguments import bound, flags_of, require_flags
from pef.misfits import require_kinds
from pybuda.errors import PyBudaError, as_own
from pybuda.parameter import Parameter
from pybuda.recording import recording, snake
from pybuda.tensor import Tensor

Operand: TypeAlias = Tensor | Parameter
Formula: TypeAlias = Callable[..., torch.Tensor]
Operator: TypeAlias = Callable[..., Tensor]

_ONE = {"operandA": "Tensor"}
_NAME = inspect.Parameter("name", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation="str")


def operator(formula: Formula, called: str = "") -> Operator:
    """Return the operator that computes `formula`: it takes a name first, operands for tensors.

    It is `called` as the formula is, where that is left out. The name may be empty. What a formula
    takes as `torch.Tensor` is an operand. While a module is recorded for the device the values of
    operands are those of the graph, so that one formula is what an operator does everywhere. An
    operator raises `TypeError` for arguments that it does not have, and `PyBudaError` for what is
    no name or no operand.
    """
    own = inspect.signature(formula)
    operands = {each.name for each in own.parameters.values() if "Tensor" in each.annotation}
    shown = [
        each.replace(annotation=re.sub(r"(torch\.)?Tensor", "Operand", each.annotation))
        for each in own.parameters.values()
    ]
    called = called or formula.__name__
    kind, flags = snake(called), flags_of(own)
    taken = inspect.Signature([_NAME, *shown], return_annotation="Tensor")

    @functools.wraps(formula)
    def applied(*args: object, **kwargs: object) -> Tensor:
        given = bound(called, taken, args, kwargs)
        name = given.arguments.pop("name")
        if not isinstance(name, str):
            raise PyBudaError(
                f"a {type(name).__name__} came as the name of an operator; operators take a name "
                "first, which may be empty"
            )
        for key in operands & given.arguments.keys():
            if given.arguments[key] is not None or "None" not in own.parameters[key].annotation:
                given.arguments[key] = _value_of(given.arguments[key])
        require_flags(called, flags, (), given.arguments)
        filled = inspect.BoundArguments(own, given.arguments)
        evaluate = functools.partial(formula, *filled.args, **filled.kwargs)
        try:
            with as_own():
                return Tensor(recording().applied(kind, name, evaluate))
        except (TypeError, AttributeError, ValueError) as error:
            require_kinds(called, formula, filled.args, filled.kwargs, error)
            raise

    applied.__name__ = applied.__qualname__ = called
    applied.__signature__ = taken  # type: ignore[attr-defined]  # what inspect and help() show
    return applied


def named(name: str, says: str, formula: Formula) -> Operator:
    """Return the operator `name` of a formula that has another name; `says` is its docstring."""
    formula.__name__ = formula.__qualname__ = name
    formula.__doc__ = says
    return operator(formula)


def each(name: str, says: str, function: Formula, **more: str) -> Operator:
    """Return the operator that applies `function` to an operand, and to `more`: names and types."""

    def formula(*given: object) -> torch.Tensor:
        return function(*given)

    formula.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what `operator` asks
        [_NAME.replace(name=key, annotation=kind) for key, kind in {**_ONE, **more}.items()]
    )
    formula.__annotations__ = {key: kind for key, kind in more.items() if "Tensor" not in kind}
    return named(name, says, formula)


def _value_of(operand: object) -> object:
    """Return the torch tensor of an operand, or those of several.

    Raises `PyBudaError` for what is no operand.
    """
    if isinstance(operand, tuple):
        return tuple(map(_value_of, operand))
    if not isinstance(operand, Tensor | Parameter):
        raise PyBudaError(
            f"a {type(operand).__name__} came as an operand; a pybuda Tensor or Parameter was "
            "expected (Tensor.create_from_torch makes one)"
        )
    return operand.value()
