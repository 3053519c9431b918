"""Arguments of public functions: what each may be, and which there are.

Sentences about one that is something else are for errors of the packages. A keyword that there is
not is a `TypeError`, which suggests those that may be meant.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from math import inf
from operator import index
from types import ModuleType
from typing import NamedTuple, ParamSpec, SupportsFloat, TypeAlias, TypeGuard, TypeVar

from .wording import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

_SHORT = 40
MOST = (1 << 63) - 1  # of steps, batches and seeds: a checkpoint holds no more
MOST_THREADS = 256  # more than any machine has; far more stop it for minutes


def _whole(value: object) -> str:
    return f" is {shown(value)}"


class Kind(NamedTuple):
    """Arguments of a kind: `words` for them, and a function that tells whether one `fits`.

    Of lists and dicts that do not, `odd` says what follows the name: the first part that is wrong.
    Where None fits, too, `given` is the kind of the others: nobody writes None on a command line.
    """

    words: str
    fits: Callable[[object], bool]
    odd: Callable[[object], str] = _whole
    given: Kind | None = None

    def or_none(self) -> Kind:
        """Return the kind of arguments that may be left out, too."""
        words = f"{self.words}, or None"
        return Kind(words, lambda value: value is None or self.fits(value), self.odd, given=self)

    def at_least(self, least: int) -> Kind:
        """Return the kind of those of these numbers that are not less than `least`."""
        fits = self.fits
        return Kind(
            f"{self.words} from {least} on",
            lambda value: fits(value) and value >= least,  # type: ignore[operator]  # a number
        )

    def above(self, limit: int) -> Kind:
        """Return the kind of those of these numbers that are greater than `limit`."""
        fits = self.fits
        return Kind(
            f"{self.words} above {limit}",
            lambda value: fits(value) and value > limit,  # type: ignore[operator]  # a number
        )


def misfits(**arguments: tuple[object, Kind]) -> list[str]:
    """Return a sentence for each of `arguments` that is not of its kind."""
    return [
        f"{name}{kind.odd(value)}; {kind.words} was expected."
        for name, (value, kind) in arguments.items()
        if not kind.fits(value)
    ]


def shown(value: object) -> str:
    """Return what came, short: `None`, `'O1'`, `Color.Red`, `a list`."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, (str, int, float, bytes)):
        text = repr(value)
        return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
    kind = type(value).__name__
    return f"an {kind}" if kind[:1].lower() in "aeiou" else f"a {kind}"


def instance(kind: type | tuple[type, ...], words: str) -> Kind:
    """Return the kind of the instances of a class, or of one of several."""
    return Kind(words, lambda value: isinstance(value, kind))


def some(kind: Kind, words: str) -> Kind:
    """Return the kind of lists and tuples of one kind of items."""

    def fits(value: object) -> bool:
        return isinstance(value, (list, tuple)) and all(map(kind.fits, value))

    def odd(value: object) -> str:
        if isinstance(value, (list, tuple)):
            for number, item in enumerate(value):
                if not kind.fits(item):
                    return f"[{number}]{_whole(item)}"
        return _whole(value)

    return Kind(words, fits, odd)


def named(kind: Kind, words: str) -> Kind:
    """Return the kind of dicts of one kind of values by texts."""

    def fits(value: object) -> bool:
        return _is_by_name(value) and all(map(kind.fits, value.values()))

    def odd(value: object) -> str:
        if isinstance(value, Mapping):
            for key, item in value.items():
                if not isinstance(key, str):
                    return f" has the key {shown(key)}"
                if not kind.fits(item):
                    return f"[{key!r}]{_whole(item)}"
        return _whole(value)

    return Kind(words, fits, odd)


def _is_whole(value: object) -> bool:
    if isinstance(value, bool):
        return False
    try:
        index(value)  # type: ignore[arg-type]  # which is asked here
    except TypeError:
        return False
    return True


def _is_number(value: object) -> bool:
    if isinstance(value, (bool, str, bytes)) or not isinstance(value, SupportsFloat):
        return False
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError):  # several numbers, of numpy or of torch
        return False
    except OverflowError:  # a whole number beyond all floats
        return False
    return True


def _is_limit(value: object) -> bool:
    """Tell whether others can be compared with `value`: all pass infinity, and none passes NaN."""
    return NUMBER.fits(value) and 0 <= float(value) < inf  # type: ignore[arg-type]  # a number


def _is_by_name(value: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_path(value: object) -> bool:
    return isinstance(value, (str, os.PathLike)) and not _no_file(os.fspath(value))


def _odd_path(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)):
        return _whole(value)
    name = os.fspath(value)
    return f"{_whole(name)}, {_no_file(name)}"


def _no_file(name: str | bytes) -> str:
    """Return why no file has this name; an empty text where one may."""
    if isinstance(name, bytes):
        return "which is no text"
    if not name:
        return "which is empty"
    return "with a null character in it" if "\0" in name else ""


ANY = Kind("anything", lambda _: True)
NAME = instance(str, "a name")
FLAG = instance(bool, "True or False")
PATH = Kind("a path", _is_path, _odd_path)
WHOLE = Kind("a whole number", _is_whole)
THREADS = Kind(
    f"a whole number from 1 to {MOST_THREADS}",
    lambda value: WHOLE.above(0).fits(value) and not WHOLE.above(MOST_THREADS).fits(value),
)
COUNT = Kind(
    "a whole number from 0 to 2**63 - 1",
    lambda value: WHOLE.at_least(0).fits(value) and not WHOLE.above(MOST).fits(value),
)
NUMBER = Kind("a number", _is_number)
LIMIT = Kind("a number from 0 on that is not infinite", _is_limit)
BY_NAME = named(ANY, "a dict by name")
NAMES = some(NAME, "a list or tuple of names")
WHOLES = some(WHOLE, "a list of whole numbers, such as [0, 2],")


def bound(
    name: str, taken: inspect.Signature, args: tuple[object, ...], kwargs: dict[str, object]
) -> inspect.BoundArguments:
    """Return the arguments of the function called `name` by parameter.

    Raises `TypeError` for those that it does not take, which suggests other keywords.
    """
    try:
        return taken.bind(*args, **kwargs)
    except TypeError as error:
        raise _refusal(name, taken, kwargs, str(error)) from None


def require_known(function: Callable[..., object], keywords: Iterable[str]) -> None:
    """Raise `TypeError`, as `bound` does, for keywords that the signature does not name."""
    taken = inspect.signature(function)
    if not taken.parameters.keys() >= set(keywords):
        raise _refusal(function.__qualname__, taken, keywords)


def _refusal(
    name: str, taken: inspect.Signature, keywords: Iterable[str], problem: str = ""
) -> TypeError:
    """Return the error for keywords that there are not, or else for another `problem`."""
    known = [each for each in taken.parameters if each not in ("self", "cls")]
    odd = [key for key in keywords if key not in taken.parameters]
    told = ", ".join(f"'{key}'{did_you_mean(key, known)}" for key in odd)
    said = f"there is no argument {told}" if odd else problem
    return TypeError(f"{name}: {said}; it takes {', '.join(known) or 'none'}")


Explains: TypeAlias = Callable[
    [str, Callable[..., object], tuple[object, ...], Mapping[str, object], Exception], None
]
"""Raises what says why a function of that name failed with arguments, if these tell."""


def told(function: Callable[P, R], explains: Explains | None = None) -> Callable[P, R]:
    """Return the function, whose errors about keywords are those of `bound`.

    Those that Python raises where values are wrong `explains` may tell: of packages whose own
    errors are others. Of these no flag may be anything else, since Python takes all that there is
    for one: 'False' would be true.
    """
    taken = inspect.signature(function)
    name = function.__qualname__.removesuffix(".__init__")
    flags = flags_of(taken) if explains is not None else ()

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        require_flags(name, flags, args, kwargs)
        try:  # which costs nothing where all is right
            return function(*args, **kwargs)
        except (TypeError, AttributeError, ValueError, KeyError) as error:
            if isinstance(error, TypeError) and not kwargs.keys() <= taken.parameters.keys():
                bound(name, taken, args, kwargs)
            if explains is not None:
                explains(name, function, args, kwargs, error)
            raise

    return call


def flags_of(taken: inspect.Signature) -> tuple[tuple[int, str], ...]:
    """Return the places and names of the parameters that are annotated as flags.

    Keywords alone have the place behind all arguments.
    """
    return tuple(
        (sys.maxsize if p.kind is p.KEYWORD_ONLY else place, p.name)
        for place, p in enumerate(taken.parameters.values())
        if p.annotation in (bool, "bool")
    )


def require_flags(
    name: str,
    flags: Iterable[tuple[int, str]],
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
) -> None:
    """Raise `TypeError` where one of the `flags` of the function called `name` is no truth.

    NumPy's are truths, as 0 and 1 are, and None is what was left out.
    """
    for place, flag in flags:
        value = args[place] if place < len(args) else kwargs.get(flag)
        is_number = isinstance(value, int) and value in (0, 1)
        # NumPy's of any version, without NumPy.
        if not (is_number or value is None or type(value).__name__ in ("bool", "bool_")):
            raise TypeError(f"{name}: {flag} is {shown(value)}; True or False was expected")


def passing_on(target: Callable[..., object]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let the signature of a function, whose further keywords go to `target`, name these.

    They are all that a class takes, and of a function those that are keywords alone. Without `told`
    it asks `require_known` itself, so that nothing stands between a caller and what runs often.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        own = inspect.signature(function)
        kept = [p for p in own.parameters.values() if p.kind is not p.VAR_KEYWORD]
        passed = [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in inspect.signature(target).parameters.values()
            if p.kind is p.KEYWORD_ONLY or isinstance(target, type)
        ]
        function.__signature__ = own.replace(parameters=[*kept, *passed])  # type: ignore[attr-defined]  # which `inspect.signature` reads
        return function

    return decorated


def tell(owner: ModuleType | type, package: str, explains: Explains | None = None) -> None:
    """Let public functions and methods of `package` that a module or class has be `told`.

    Functions are so in the modules that define them, too. Classes are told through; enumerations,
    exceptions and protocols are left as they are, and so is what is `passing_on` keywords.
    """
    for name, value in [*vars(owner).items()]:
        function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        home = str(getattr(function, "__module__", "")).partition(".")[0]
        is_hidden = name.startswith("_") and name != "__init__"
        is_done = hasattr(function, "__wrapped__") or hasattr(function, "__signature__")
        if home != package or is_hidden or is_done:
            continue
        if isinstance(value, classmethod | staticmethod):
            setattr(owner, name, type(value)(told(function, explains)))
        elif inspect.isfunction(value):
            _replace(owner, name, value, explains)
        elif isinstance(value, type) and not _is_left_alone(value):
            tell(value, package, explains)


def _replace(
    owner: ModuleType | type, name: str, function: Callable[..., object], explains: Explains | None
) -> None:
    """Put what is `told` in the place of a function, and where it is defined.

    Pickles find it there. Where that has been done for another owner, it is the same one.
    """
    home = sys.modules.get(function.__module__) if isinstance(owner, ModuleType) else None
    there = getattr(home, function.__name__, None)
    by = there if getattr(there, "__wrapped__", None) is function else told(function, explains)
    setattr(owner, name, by)
    if there is function:
        setattr(home, function.__name__, by)


def _is_left_alone(owner: type) -> bool:
    return issubclass(owner, Enum | Exception) or bool(getattr(owner, "_is_protocol", False))
