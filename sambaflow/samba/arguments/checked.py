"""Arguments of public functions, checked before anything is done with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import ParamSpec, TypeVar, cast

from pef.arguments import shown
from sambaflow.samba.errors import SambaError

from .keywords import no_keyword, translated
from .kinds import ArgumentKind, kind_of

P = ParamSpec("P")
R = TypeVar("R")

_SEVERAL = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


_UNKNOWN = ArgumentKind("a parameter", lambda _: True)
"""Of a keyword that no parameter has: the function itself refuses it."""


class KindError(SambaError, TypeError):
    """An argument that is not of its kind; as elsewhere in Python this is a TypeError, too."""


def checked(
    keywords: str = "", /, **said: ArgumentKind | None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function raise `KindError` for arguments that are not of their kinds, all at once.

    A parameter is of the kind that is `said`, else of that of its annotation. One whose annotation
    no kind is known for, and of which none is said, is a TypeError when the function is made.
    The function takes those further `keywords`, too, that `KEYWORDS` has under this name.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        kinds, positional = _kinds(function, said)
        parameters = tuple(kinds)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for kind, value in zip(positional, args, strict=False):
                if kind is not None and type(value) not in kind.plain and not kind.fits(value):
                    raise _refusal(kinds, args, kwargs)
            for name, value in kwargs.items():
                kind = kinds.get(name, _UNKNOWN)
                if kind is None or type(value) in kind.plain:
                    continue
                if kind is _UNKNOWN and keywords:
                    given = translated(keywords, parameters, len(args), kwargs)
                    return cast(Callable[..., R], call)(*args, **given)
                if not kind.fits(value):
                    raise _refusal(kinds, args, kwargs)
            try:
                return function(*args, **kwargs)
            except TypeError:
                _require_taken(function, args, kwargs)
                raise

        return call

    return decorated


def require(name: str, value: object, kind: ArgumentKind) -> None:
    """Raise `KindError` for a value called `name` that is not of its kind."""
    if not kind.fits(value):
        raise KindError(_told(name, value, kind))


def _kinds(
    function: Callable[..., object], said: Mapping[str, ArgumentKind | None]
) -> tuple[dict[str, ArgumentKind | None], tuple[ArgumentKind | None, ...]]:
    """Return what the parameters of `function` may be, all and those that have a position.

    None is for those of any kind.
    """
    parameters = [p for p in signature(function).parameters.values() if p.kind not in _SEVERAL]
    kinds = {p.name: said[p.name] if p.name in said else _annotated(p) for p in parameters}
    return kinds, tuple(kinds[p.name] for p in parameters if p.kind is not p.KEYWORD_ONLY)


def _annotated(parameter: Parameter) -> ArgumentKind | None:
    if parameter.annotation is Parameter.empty:  # self and cls
        return None
    try:
        return kind_of(parameter.annotation)
    except KeyError as error:
        raise TypeError(
            f"no kind is known for the annotation {error} of '{parameter.name}'; say one"
        ) from error


def _require_taken(
    function: Callable[..., object], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> None:
    """Raise `TypeError` for what `function` does not take, or lacks, by the name that was called.

    Python's own names the class that a constructor stands in, not the one that inherits it.
    """
    taken = signature(function)
    try:
        taken.bind(*args, **kwargs)
    except TypeError as error:
        name = function.__name__
        if name in ("__init__", "__new__"):
            owner = args[0] if isinstance(args[0], type) else type(args[0])
            name = owner.__name__
        unknown = [word for word in kwargs if word not in taken.parameters]
        said = no_keyword(unknown, taken.parameters) if unknown else str(error)
        raise TypeError(f"{name}() {said}") from None


def _refusal(
    kinds: Mapping[str, ArgumentKind | None], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> KindError:
    given = {**dict(zip(kinds, args, strict=False)), **kwargs}
    wrong = [
        _told(name, given[name], kind)
        for name, kind in kinds.items()
        if kind is not None and name in given and not kind.fits(given[name])
    ]
    return KindError("\n".join(wrong))


def _told(name: str, value: object, kind: ArgumentKind) -> str:
    return f"{name} is {shown(value)}; expected {kind.words}"
