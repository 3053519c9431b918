"""Arguments of the session's methods, checked before anything is done with them."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import wraps
from inspect import signature
from typing import NamedTuple, ParamSpec, TypeVar

from torch import Tensor, nn

from .errors import SambaError
from .tensor import SambaTensor

P = ParamSpec("P")
R = TypeVar("R")


class Kind(NamedTuple):
    """Arguments of a kind: `words` for them, and a function that tells whether one `fits`."""

    words: str
    fits: Callable[[object], bool]


def _listed(value: object, kind: type) -> bool:
    """Return whether `value` lists things of a kind; what is taken one by one is seen then."""
    if not isinstance(value, Collection) or isinstance(value, (str, bytes, Tensor)):
        return isinstance(value, Iterator)
    return all(isinstance(item, kind) for item in value)


def _by_name(value: object) -> bool:
    return value is None or (isinstance(value, Mapping) and all(isinstance(k, str) for k in value))


MODULE = Kind("a torch.nn.Module", lambda value: isinstance(value, nn.Module))
NAME = Kind("a name", lambda value: isinstance(value, str))
NAME_OR_NONE = Kind("a name, or None", lambda value: value is None or isinstance(value, str))
NAMES = Kind("a list of names", lambda value: _listed(value, str))
TENSORS = Kind("a list of SambaTensors", lambda value: _listed(value, SambaTensor))
TENSOR_OR_NONE = Kind("a tensor, or None", lambda v: v is None or isinstance(v, Tensor))
MAPPING = Kind("a dict by name", lambda value: value is not None and _by_name(value))
BY_NAME = Kind("a dict by name, or None", _by_name)
PATH = Kind("a path", lambda value: isinstance(value, (str, os.PathLike)))
PATH_OR_NONE = Kind("a path, or None", lambda value: value is None or PATH.fits(value))
COUNT = Kind("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool))
COUNT_OR_NONE = Kind("a whole number, or None", lambda v: v is None or COUNT.fits(v))


def checked(**kinds: Kind) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise `SambaError` for arguments that are not of their kinds, all at once."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = tuple(signature(function).parameters)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            given = {**dict(zip(parameters, args, strict=False)), **kwargs}
            wrong = [n for n, kind in kinds.items() if n in given and not kind.fits(given[n])]
            if wrong:
                from pef.arguments import shown

                raise SambaError(
                    "\n".join(f"{n} is {shown(given[n])}; expected {kinds[n].words}" for n in wrong)
                )
            return function(*args, **kwargs)

        return call

    return decorated
