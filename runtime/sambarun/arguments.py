"""Arguments of the public functions, checked before anything is done with them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pef.arguments import ANY, Kind, misfits, named

from .errors import RunError

_T = TypeVar("_T")
INPUTS = named(ANY, "a dict of arrays by the names of inputs")


def require(**arguments: tuple[object, Kind]) -> None:
    """Raise `RunError` with a line for each argument that is not of its kind."""
    problems = misfits(**arguments)
    if problems:
        raise RunError("\n".join(problems))


def items(name: str, asked: Iterable[_T], kind: Kind) -> tuple[_T, ...]:
    """Return what an argument lists. Raises `RunError` unless it is of a kind of lists."""
    given: object = asked  # which may be anything
    listing = isinstance(given, Iterable) and not isinstance(given, (str, bytes, Mapping))
    found = tuple(asked) if listing else given
    require(**{name: (found, kind)})
    return tuple(asked) if not isinstance(found, tuple) else found
