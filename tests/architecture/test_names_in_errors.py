"""An error about arguments names what was called by the name that the caller wrote.

Python's own names the class in which a constructor stands, or the function behind an alias.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pybuda
import sambaflow.samba as samba
from sambaflow.samba.graph import FwdGraph

_PLACES = (
    *("sambac", "sambarun", "pef", "pybuda", "pybuda.op", "pybuda.op.loss", "pybuda.config"),
    *("sambaflow.samba", "sambaflow.samba.graph", "sambaflow.samba.optim", "sambaflow.samba.utils"),
)
_NOT_MADE = ("Handle", "Reducer", "DataFormat")  # what somebody else makes


def _named(place: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield what can be called in a module, and methods of its classes, by name."""
    module = importlib.import_module(place)
    words = getattr(module, "__all__", None) or [
        word for word, value in vars(module).items() if getattr(value, "__module__", "") == place
    ]
    for word in words:
        value = getattr(module, word)
        if not callable(value) or isinstance(value, enum.EnumType) or word.startswith("_"):
            continue
        if (isinstance(value, type) and issubclass(value, Exception)) or word in _NOT_MADE:
            continue
        yield f"{place}.{word}", value
        for member, function in vars(value).items() if isinstance(value, type) else ():
            if inspect.isfunction(function) and not member.startswith("_"):
                yield f"{place}.{word}.{member}", function


CALLED = dict(pair for place in _PLACES for pair in _named(place))


def _takes_any(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


@pytest.mark.parametrize("name", [n for n, function in CALLED.items() if not _takes_any(function)])
def test_an_error_names_what_was_called(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        CALLED[name](no_such_keyword=1)
    assert name.rpartition(".")[2] in str(caught.value)


def test_there_is_much_to_call() -> None:
    assert len(CALLED) > 300


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: pybuda.override_op_size("add", size=2), r"^override_op_size: .* 'size' \(did"),
        (FwdGraph, r"FwdGraph\(\) missing a required argument: 'start'"),
        (lambda: samba.SambaParameter(*[None] * 12), r"SambaParameter\(\) too many positional"),
        (
            lambda: samba.SambaParameter(torch.zeros(2), nam="x"),
            r"SambaParameter\(\) takes no keyword 'nam' \(did you mean 'name'\?\)",
        ),
        (lambda: samba.optim.SparseAdamW([], rate=1), r"^SparseAdamW\(\) takes no keyword 'rate'"),
    ],
)
def test_how_it_is_said(call: Callable[[], object], said: str) -> None:
    with pytest.raises(TypeError, match=said):
        call()
