"""Which argument is of another type than its annotation says: for errors that Python raised."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .arguments import shown

_NUMBERS: Mapping[object, tuple[type, ...]] = {int: (int,), float: (int, float)}
"""What is a number of a kind; truths are none."""


def require_kinds(
    name: str,
    function: Callable[..., object],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    error: Exception,
) -> None:
    """Raise `TypeError`, for an `error` of Python's own, if an argument is of another type."""
    odd = misfit(function, args, kwargs)
    if odd is not None:
        raise TypeError(f"{name}: {odd}") from error


def misfit(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> str | None:
    """Return a sentence about the first argument that is of none of the types it is annotated with.

    None where all are, or where it cannot be told.
    """
    taken = inspect.signature(function)
    try:
        hints = typing.get_type_hints(function)
        given = taken.bind(*args, **kwargs).arguments
    except (NameError, TypeError):  # of names for type checkers alone; arguments that are not taken
        return None
    for name, value in given.items():
        parameter = taken.parameters[name]
        for own, each in _each(parameter, value):
            if name in hints and not fits(each, hints[name]):
                wanted = inspect.formatannotation(parameter.annotation).strip("'")
                return f"{own} is {shown(each)}; {wanted} was expected"
    return None


def _each(parameter: inspect.Parameter, value: Any) -> Iterable[tuple[str, object]]:
    """Return the names and values of the arguments that `parameter` takes, several if it may."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return tuple(value.items())
    if parameter.kind is parameter.VAR_POSITIONAL:
        return [(parameter.name, each) for each in value]
    return [(parameter.name, value)]


def fits(value: object, hint: object) -> bool:
    """Return whether a value is of an annotated type, as far as that can be told.

    >>> fits([1, 2], list[int]), fits(["a"], list[int]), fits(None, int | None), fits(2, float)
    (True, False, True, True)
    """
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(fits(value, each) for each in inner)
    if hint is None:
        return value is None
    if not isinstance(origin, type) or origin is Any or getattr(origin, "_is_protocol", False):
        return True
    if isinstance(value, str | bytes) and inner:
        return False  # each of its letters is one, too: nobody means that by a row of texts
    if isinstance(value, bool) and origin in _NUMBERS:
        return False
    if not isinstance(value, _NUMBERS.get(origin, (origin,))):
        return False
    return _holds(value, inner)


def _holds(value: object, inner: tuple[object, ...]) -> bool:
    """Return whether what is in a collection is of the types that it is annotated with."""
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(fits(k, inner[0]) and fits(item, inner[1]) for k, item in value.items())
    if isinstance(value, list | tuple | set | frozenset) and len({*inner} - {...}) == 1:
        return all(fits(item, inner[0]) for item in value)
    return True
