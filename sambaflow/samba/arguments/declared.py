"""Values from a file for the options that an application has declared itself."""

from __future__ import annotations

from argparse import (
    ONE_OR_MORE,
    OPTIONAL,
    Action,
    ArgumentTypeError,
    BooleanOptionalAction,
    _AppendAction,
)
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pef.text import number_of, plural

_TEXTS = (str, int, float)
"""What YAML has for what a command line says. It has more, for what is not in quotes: yes, on and
no are true and false for it, and 2026-01-02 is a day."""


@dataclass(frozen=True)
class Declared:
    """What argparse was told of an option; `kind` makes a value of a text, None leaves it.

    `count` is how many values it takes: None for one, 0 for a switch, which stands for `constant`,
    or what argparse has for several.
    """

    kind: Callable[[str], object] | None
    choices: tuple[object, ...] | None
    count: int | str | None
    constant: object

    @classmethod
    def of(cls, action: Action) -> Declared:
        """Return what `action` says."""
        kind: Any = action.type
        choices = None if action.choices is None else tuple(action.choices)
        constant = isinstance(action, BooleanOptionalAction) or action.const
        count = ONE_OR_MORE if isinstance(action, _AppendAction) else action.nargs
        return cls(kind if callable(kind) else None, choices, count, constant)

    def read(self, value: object) -> object:
        """Return `value` of a file as the command line would have it; None and dicts stay.

        Raises ValueError for what the option does not take.
        """
        if value is None or isinstance(value, dict):
            return value
        if self.count == 0:
            return self._switched(value)
        if self.count in (None, OPTIONAL):
            if isinstance(value, list) and self.kind in _TEXTS:
                raise ValueError(f"{value!r} is a list, expected one value")
            return self._one(value)
        values = value if isinstance(value, list) else [value]
        if isinstance(self.count, int) and len(values) != self.count:
            raise ValueError(f"{value!r} has {plural(len(values), 'value')}, not {self.count}")
        return self._one(values)

    def _switched(self, value: object) -> object:
        if not isinstance(self.constant, bool):
            return value if value is not True or self.constant is None else self.constant
        return _true_or_false(value)

    def _one(self, value: object) -> object:
        if isinstance(value, list):
            return [self._one(each) for each in value]
        if self.kind is bool:  # of the text of a number, it would be true
            return bool(_true_or_false(value))
        plain = type(value) in _TEXTS
        cure = "; put texts in quotes" if not plain and self.kind in (None, str) else ""
        if not plain and self.kind in _TEXTS:
            raise ValueError(f"{value!r} is no {getattr(self.kind, '__name__', '')}{cure}")
        found = self._made(value) if plain else value
        if self.choices is not None and found not in self.choices:
            raise ValueError(f"{value!r} is none of {', '.join(map(str, self.choices))}{cure}")
        return found

    def _made(self, value: object) -> object:
        text = str(value)
        if self.kind is None:
            return text if text in (self.choices or ()) else value
        number = number_of(text) if self.kind is int else None
        if number is not None and number.is_integer():  # 1e3 is text for YAML, and no int
            return int(number)
        try:
            return self.kind(text)
        except ArgumentTypeError as error:
            raise ValueError(str(error)) from error
        except (TypeError, ValueError) as error:
            name = getattr(self.kind, "__name__", str(self.kind))
            raise ValueError(f"{value!r} is no {name}") from error


def _true_or_false(value: object) -> object:
    if type(value) is str:  # any would be true
        raise ValueError(f"{value!r} is neither true nor false")
    return value


class Declarations(dict[str, Declared]):
    """What is known of each option, by its attribute: nothing behind a pickle.

    What options take may be functions that cannot be pickled; the values of options can be.
    """

    def __deepcopy__(self, memo: object) -> Declarations:
        """Return itself, as it does not change."""
        return self

    def __reduce__(self) -> tuple[type[Declarations], tuple[()]]:
        """Return how to make what comes out of a pickle."""
        return Declarations, ()


def declared(actions: Iterable[Action]) -> Declarations:
    """Return what is known of each option; of two of one attribute, the later's."""
    return Declarations({action.dest: Declared.of(action) for action in actions})
