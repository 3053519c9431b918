"""Values from a file for the options that an application has declared itself."""

from __future__ import annotations

from argparse import Action, ArgumentTypeError
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pef.text import number_of


@dataclass(frozen=True)
class Declared:
    """What argparse was told of an option; `kind` makes a value of a text, None leaves it.

    A `switch` takes no value: it is true or false, as a number is.
    """

    kind: Callable[[str], object] | None
    choices: tuple[object, ...] | None
    switch: bool

    @classmethod
    def of(cls, action: Action) -> Declared:
        """Return what `action` says."""
        kind: Any = action.type
        choices = None if action.choices is None else tuple(action.choices)
        switch = action.nargs == 0 and isinstance(action.const, bool)
        return cls(kind if callable(kind) else None, choices, switch)

    def read(self, value: object) -> object:
        """Return `value` of a file as the command line would have it; None and dicts stay.

        Raises ValueError for what the option does not take.
        """
        if isinstance(value, list):
            return [self.read(each) for each in value]
        if (self.switch or self.kind is bool) and isinstance(value, str):
            raise ValueError(f"{value!r} is neither true nor false")  # any text would be true
        if self.switch or type(value) not in (str, int, float):
            return value
        found = self._made(value)
        if self.choices is not None and found not in self.choices:
            raise ValueError(f"{value!r} is none of {', '.join(map(str, self.choices))}")
        return found

    def _made(self, value: object) -> object:
        if self.kind is None:
            return value
        text = str(value)
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


def declared(actions: Iterable[Action]) -> dict[str, Declared]:
    """Return what is known of each option, by its attribute; of two of one, the later's."""
    return {action.dest: Declared.of(action) for action in actions}
