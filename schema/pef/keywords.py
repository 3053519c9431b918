"""Arguments that functions of an API do not take: errors that suggest those that may be meant."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from enum import Enum
from types import ModuleType
from typing import ParamSpec, TypeVar

from .wording import did_you_mean

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
        try:  # which costs nothing where all is right
            return function(*args, **kwargs)
        except TypeError:
            if not kwargs.keys() <= taken.parameters.keys():
                bound(name, taken, args, kwargs)
            raise

    return call


def passing_on(target: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the signature of a function, whose further keywords go to `target`, name these."""

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        passed = [
            p for p in inspect.signature(target).parameters.values() if p.kind is p.KEYWORD_ONLY
        ]
        function.__signature__ = own.replace(parameters=[*kept, *passed])  # type: ignore[attr-defined]  # which `inspect.signature` reads
        return function

    return decorated


def tell(owner: ModuleType | type, package: str) -> None:
    """Let public functions and methods of `package` that a module or class has be `told`.

    Functions are so in the modules that define them, too. Classes are told through; enumerations,
    exceptions and protocols are left as they are.
    """
    for name, value in [*vars(owner).items()]:
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        home = str(getattr(function, "__module__", "")).partition(".")[0]
        is_hidden = name.startswith("_") and name != "__init__"
        if home != package or is_hidden or hasattr(function, "__wrapped__"):
            continue
        if isinstance(value, classmethod | staticmethod):
            setattr(owner, name, type(value)(told(function)))
        elif inspect.isfunction(value):
            _replace(owner, name, value, told(value))
        elif isinstance(value, type) and not _is_left_alone(value):
            tell(value, package)


def _replace(
    owner: ModuleType | type,
    name: str,
    function: Callable[..., object],
    by: Callable[..., object],
) -> None:
    """Put a function in the place of one, and where it is defined: pickles find it there."""
    setattr(owner, name, by)
    home = sys.modules.get(function.__module__)
    if isinstance(owner, ModuleType) and getattr(home, function.__name__, None) is function:
        setattr(home, function.__name__, by)


def _is_left_alone(owner: type) -> bool:
    return issubclass(owner, Enum | Exception) or bool(getattr(owner, "_is_protocol", False))
