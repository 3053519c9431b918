"""What an argument of a public function may be, and the sentence about one that is something else.

Each package raises an error of its own with these sentences.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from enum import Enum
from operator import index
from typing import NamedTuple, SupportsFloat

_SHORT = 40


class Kind(NamedTuple):
    """Arguments of a kind: `words` for them, and a function that tells whether one `fits`.

    Of lists, `item` is what tells whether one of their items does.
    """

    words: str
    fits: Callable[[object], bool]
    item: Callable[[object], bool] | None = None

    def or_none(self) -> Kind:
        """Return the kind of arguments that may be left out, too."""
        words = f"{self.words}, or None"
        return Kind(words, lambda value: value is None or self.fits(value), self.item)

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
        f"{_what_came(name, value, kind)}; {kind.words} was expected."
        for name, (value, kind) in arguments.items()
        if not kind.fits(value)
    ]


def _what_came(name: str, value: object, kind: Kind) -> str:
    """Return what came: of a list of which some item does not fit the first of these."""
    if kind.item is not None and isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            if not kind.item(item):
                return f"{name}[{number}] is {shown(item)}"
    return f"{name} is {shown(value)}"


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

    return Kind(words, fits, kind.fits)


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


def _is_by_name(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


NAME = instance(str, "a name")
FLAG = instance(bool, "True or False")
PATH = Kind("a path", lambda value: isinstance(value, (str, os.PathLike)))
WHOLE = Kind("a whole number", _is_whole)
NUMBER = Kind("a number", _is_number)
BY_NAME = Kind("a dict by name", _is_by_name)
NAMES = some(NAME, "a list or tuple of names")
WHOLES = some(WHOLE, "a list of whole numbers, such as [0, 2],")
