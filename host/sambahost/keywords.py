"""Arguments that functions of an API do not take: errors that suggest those that may be meant."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import ParamSpec, TypeVar

from pef.wording import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


def bound(
    name: str, taken: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]
) -> inspect.BoundArguments:
    """Return the arguments of the function called `name` by parameter.

    Raises `TypeError` for those that it does not take, which suggests other keywords.
    """
    try:
        return taken.bind(*args, **kwargs)
    except TypeError as error:
        said, known = str(error), [each for each in taken.parameters if each != "self"]
        for key in kwargs.keys() - taken.parameters.keys():
            said = f"there is no argument '{key}'{did_you_mean(key, known)}"
        raise TypeError(f"{name}: {said}; it takes {', '.join(known) or 'none'}") from None


def told(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function, whose errors about keywords are those of `bound`."""
    taken = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= taken.parameters.keys():
            bound(name, taken, args, kwargs)
        return function(*args, **kwargs)

    return call


def tell(owner: ModuleType | type, package: str) -> None:
    """Let public functions and methods of `package` that a module or class has be `told`.

    Classes are told through; enumerations and exceptions are left as they are.
    """
    for name, value in [*vars(owner).items()]:
        function = value.__func__ if isinstance(value, classmethod) else value
        home = str(getattr(function, "__module__", "")).partition(".")[0]
        is_hidden = name.startswith("_") and name != "__init__"
        if home != package or is_hidden or hasattr(function, "__wrapped__"):
            continue
        if isinstance(value, classmethod):
            setattr(owner, name, classmethod(told(function)))
        elif inspect.isfunction(value):
            setattr(owner, name, told(value))
        elif isinstance(value, type) and not issubclass(value, Enum | Exception):
            tell(value, package)
