"""What applications call on a session, and one of the sides that it holds does.

A session has some sixty names, which its pages prescribe. Its sides have the methods, and the
session says of each name whose it is: `setup = held(_modes, Modes.setup)`. Signature, documentation
and types are those of the side's method.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast, overload

from .tensors.current import current

O = TypeVar("O")  # noqa: E741, a session
S = TypeVar("S")
T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")


def held(
    side: Callable[[O], S], method: Callable[Concatenate[S, P], R]
) -> Callable[Concatenate[O, P], R]:
    """Return the `method` of a `side` as one of the session that has the side."""

    @wraps(method)
    def call(owner: O, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return method(side(owner), *args, **kwargs)

    return call


class _OfEither(classmethod):  # type: ignore[type-arg]  # it takes none when it runs
    """A method of a session, or of the class if it is called on that."""

    def __get__(self, owner: object | None, kind: type | None = None, /) -> MethodType:
        return MethodType(self.__func__, kind if owner is None else owner)


def held_by_class(
    side: Callable[[O], S], method: Callable[Concatenate[S, P], R]
) -> classmethod[Any, P, R]:
    """Return the `method` of a `side` for callers of the class, too: the process's session then."""

    @wraps(method)
    def call(owner: O | type, /, *args: P.args, **kwargs: P.kwargs) -> R:
        of = current() if isinstance(owner, type) else owner
        return method(side(cast("O", of)), *args, **kwargs)

    return _OfEither(call)


def by_class(method: Callable[Concatenate[O, P], R]) -> classmethod[Any, P, R]:
    """Return a method of the session for callers of the class, too, as `held_by_class` does."""

    def itself(of: O) -> O:
        return of

    return held_by_class(itself, method)


class HeldValue(Generic[T]):
    """The attribute `name` of a `side`, as one of the session that has the side."""

    def __init__(self, side: Callable[[Any], object], name: str) -> None:
        self._side = side
        self._name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> T: ...

    def __get__(self, owner: object | None, kind: type) -> Self | T:
        return self if owner is None else cast("T", getattr(self._side(owner), self._name))

    def __set__(self, owner: object, value: T) -> None:
        setattr(self._side(owner), self._name, value)
