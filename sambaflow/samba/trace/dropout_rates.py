"""Which attributes of modules are rates of dropout alone, which count where something trains."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

_DROPOUTS = (
    functional.alpha_dropout,
    functional.dropout,
    functional.dropout1d,
    functional.dropout2d,
    functional.dropout3d,
    functional.feature_alpha_dropout,
    torch.alpha_dropout,
    torch.dropout,
    torch.feature_alpha_dropout,
)
"""Functions of an input, a rate, and whether to drop anything."""
_USUAL = ast.Constant(0.5)
_NOT_COMPUTED = frozenset({"__init__", "extra_repr", "__repr__"})


class _Reads(NamedTuple):
    """What a method reads of its object: `rates` for dropout while that trains, and what else."""

    rates: frozenset[str]
    other: frozenset[str]


def own_rates(kind: type[nn.Module]) -> frozenset[str]:
    """Return the attributes of a module that are rates of dropout, and nothing else.

    As in `F.dropout(x, self.p, self.training)`: they have no effect where nothing trains. One that
    any method reads for something else is none; nor is any where that cannot be told.
    """
    forward = _reads(kind.forward)
    if forward is None or not forward.rates:
        return frozenset()
    found = [*map(_reads, _methods(kind))]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return frozenset()
    rates = forward.rates.union(*(each.rates for each in known))
    return rates.difference(*(each.other for each in known))


def _methods(kind: type) -> Iterator[Callable[..., Any]]:
    for each in kind.__mro__:
        for name, value in vars(each).items() if each not in nn.Module.__mro__ else ():
            method = value.fget if isinstance(value, property) else value
            if isinstance(method, FunctionType) and name not in _NOT_COMPUTED:
                yield method


@cache
def _reads(method: Callable[..., Any]) -> _Reads | None:
    """Return what `method` reads of its object, None where that cannot be told."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(method))).body
    except (OSError, TypeError, SyntaxError):  # no source, such as code typed in
        return None
    if not isinstance(function, ast.FunctionDef):
        return None
    me = function.args.args[0].arg if function.args.args else ""
    parts = [*ast.walk(function)]
    given = {
        part
        for call in parts
        if isinstance(call, ast.Call) and _drops(call, method, me)
        for part in ast.walk(_argument(call, 1, "p") or _USUAL)
    }
    read = [part for part in parts if isinstance(part, ast.Attribute) and _is(part.value, me)]
    if sum(_is(part, me) for part in parts) > len(read):
        return None  # others get the object, and read what they like
    rates = frozenset(part.attr for part in read if part in given)
    stay = (part for part in read if part not in given and isinstance(part.ctx, ast.Load))
    return _Reads(rates, frozenset(part.attr for part in stay))


def _drops(call: ast.Call, method: Callable[..., Any], me: str) -> bool:
    """Tell whether a call is one of dropout that has an effect while the module `me` trains."""
    first, *rest = ast.unparse(call.func).split(".")
    function = getattr(method, "__globals__", {}).get(first)
    for name in rest:
        function = getattr(function, name, None)
    switch = _argument(call, 2, "training") or _argument(call, 2, "train")
    meant = any(function is each for each in _DROPOUTS)
    if not isinstance(switch, ast.Attribute):
        return False
    return meant and _is(switch.value, me) and switch.attr == "training"


def _argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument of a call, None if it is not there in words."""
    named = (word.value for word in call.keywords if word.arg == name)
    return call.args[position] if position < len(call.args) else next(named, None)


def _is(part: ast.AST, name: str) -> bool:
    return isinstance(part, ast.Name) and part.id == name
