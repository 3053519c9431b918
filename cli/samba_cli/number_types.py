"""Types of options: numbers, written as numbers are written everywhere, and words.

Those of click take what Python takes for its own source: `1_0`, ` 1`, digits of other scripts.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar

import click

from pef.arguments import MOST_THREADS
from pef.text import number_of, whole_of

if TYPE_CHECKING:
    _Choice = click.Choice[str]
    _Type = click.ParamType[Any]
else:  # older versions of click know no types of what is read
    _Choice = click.Choice
    _Type = click.ParamType


class _Written(_Type):
    """What comes before a type of click's, and keeps from it what is no number elsewhere."""

    read: ClassVar[Callable[[str], float | None]]
    kind: ClassVar[str]

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for text that is none."""
        if isinstance(value, str) and type(self).read(value) is None:
            self.fail(f"{value!r} is no {self.kind}.", param, ctx)
        return super().convert(value, param, ctx)


class WholeNumber(_Written, click.types.IntParamType):
    """A whole number."""

    read = whole_of
    kind = "whole number"


class WholeNumberRange(WholeNumber, click.IntRange):
    """A whole number within limits, which the help tells."""


class Number(_Written, click.types.FloatParamType):
    """A number."""

    read = number_of
    kind = "number"


class NumberRange(Number, click.FloatRange):
    """A number within limits, which the help tells."""


class FiniteRange(NumberRange):
    """A number within limits; not NaN, which none exclude, nor infinity."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for one that is not finite."""
        found: float = super().convert(value, param, ctx)
        if not isfinite(found):
            self.fail(f"{found} is not a finite number.", param, ctx)
        return found


THREADS = WholeNumberRange(min=1, max=MOST_THREADS)
"""How many threads to compute with."""
SECONDS = FiniteRange(min=0, min_open=True)
"""How long something may take."""


class Word(_Choice):
    """One of several words; of those that are none, it says which one is like them."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return what is said of a word that is none."""
        from pef.wording import did_you_mean  # with which much else is loaded

        words = ", ".join(map(repr, self.choices))
        return f"{value!r} is not one of {words}{did_you_mean(value, self.choices)}."
