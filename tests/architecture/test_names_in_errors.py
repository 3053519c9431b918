"""An error about arguments names what was called by the name that the caller wrote.

Python's own names the class in which a constructor stands, or the function behind an alias.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import pickle
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
# What somebody else makes, and what has to be derived from.
_NOT_MADE = ("Handle", "Reducer", "DataFormat", "Profile", "Span", "OperatorSpan")
_DERIVED_FROM = ("pybuda.Device", "pybuda.Module", "pybuda.PyBudaModule")


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
        for member in dir(value) if isinstance(value, type) else ():
            function = getattr(value, member)
            own = getattr(function, "__module__", None) or ""
            if not own.startswith(("sambac", "sambarun", "pef", "sambaflow", "pybuda")):
                continue
            if inspect.isroutine(function) and not member.startswith("_"):
                yield f"{place}.{word}.{member}", function


CALLED = dict(pair for place in _PLACES for pair in _named(place))


def _takes_any(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)


@pytest.mark.parametrize("name", [n for n, function in CALLED.items() if not _takes_any(function)])
def test_an_error_names_what_was_called(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        CALLED[name](no_such_keyword=1)
    asked, own = name.rpartition(".")[2], CALLED[name]
    is_alias = inspect.isfunction(own) and own.__name__ != asked  # it says what it is the same as
    assert (own.__name__ if is_alias else asked) in str(caught.value)


def _keywords(function: Callable[..., Any]) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if p.kind in kinds and p.name != "self" and len(p.name) > 3]


_WITH_KEYWORDS = [n for n, f in CALLED.items() if not _takes_any(f) and _keywords(f)]
_WITH_KEYWORDS = [name for name in _WITH_KEYWORDS if name not in _DERIVED_FROM]
# Those that look at keywords themselves, once all else is there: `test_selection.py` calls them.
_WITH_KEYWORDS = [n for n in _WITH_KEYWORDS if "__signature__" not in vars(CALLED[n])]


@pytest.mark.parametrize("name", _WITH_KEYWORDS)
def test_a_misspelt_keyword_is_met_with_the_right_one(name: str) -> None:
    word = _keywords(CALLED[name])[-1]
    misspelt = word[:-1] + "_" + word[-1]
    of_session = name.partition("SambaSession.")[2]  # whose sides have the methods
    called = getattr(samba.session, of_session) if of_session else CALLED[name]
    with pytest.raises(TypeError, match=rf"'{misspelt}' \(did you mean '\w+'\?\)"):
        called(**{misspelt: 1})


@pytest.mark.parametrize("place", ["sambac", "sambarun", "pef"])
def test_what_is_public_is_found_by_pickles(place: str) -> None:
    module = importlib.import_module(place)
    for word in module.__all__:
        value = getattr(module, word)
        if inspect.isfunction(value) or isinstance(value, type):
            assert pickle.loads(pickle.dumps(value)) is value


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
