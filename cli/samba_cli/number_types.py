"""Types of options that are numbers, written as numbers are written everywhere, or known words.

Those of click take what Python takes for its own source: `1_0`, ` 1`, digits of other scripts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from pef.text import number_of, whole_of

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:  # older versions of click know no types of words
    _Choice = click.Choice


class WholeNumber(click.IntRange):
    """A whole number, within limits if there are some."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for text that is none."""
        if isinstance(value, str) and whole_of(value) is None:
            self.fail(f"{value!r} is no whole number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        """Return the limits as help shows them, nothing where there are none."""
        return "" if self.min is self.max is None else super()._describe_range()


class Number(click.FloatRange):
    """A number, within limits if there are some."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for text that is none."""
        if isinstance(value, str) and number_of(value) is None:
            self.fail(f"{value!r} is no number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        """Return the limits as help shows them, nothing where there are none."""
        return "" if self.min is self.max is None else super()._describe_range()


class Word(_Choice):
    """One of several words; of those that are none, it says which one is like them."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return what is said of a word that is none."""
        from pef.wording import did_you_mean  # with which much else is loaded

        message = super().get_invalid_choice_message(value, ctx)
        return f"{message.removesuffix('.')}{did_you_mean(value, self.choices)}."
