"""Types of options that are numbers, written as numbers are written everywhere.

Those of click take what Python takes for its own source: `1_0`, ` 1`, digits of other scripts.
"""

from __future__ import annotations

from typing import Any

import click

from pef.text import number_of, whole_of


class WholeNumber(click.IntRange):
    """A whole number, within limits if there are some."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for text that is none."""
        if isinstance(value, str) and whole_of(value) is None:
            self.fail(f"{value!r} is no whole number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return _limits(self, super()._describe_range())


class Number(click.FloatRange):
    """A number, within limits if there are some."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number that `value` is; fail for text that is none."""
        if isinstance(value, str) and number_of(value) is None:
            self.fail(f"{value!r} is no number.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        return _limits(self, super()._describe_range())


def _limits(numbers: WholeNumber | Number, described: str) -> str:
    """Return nothing for numbers without limits, of which click writes `x<=None` in its help."""
    return "" if numbers.min is None and numbers.max is None else described
