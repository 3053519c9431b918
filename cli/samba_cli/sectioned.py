"""A command whose help shows its options under several headings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, TypeVar

import click

_GENERAL = "Options"
_Function = TypeVar("_Function", bound=Callable[..., object])


class SectionOption(click.Option):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *arguments: Any, section: str = _GENERAL, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """A command that groups its options by section, in the order in which sections appear."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of options for each section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None and not isinstance(parameter, click.Argument):
                sections.setdefault(getattr(parameter, "section", _GENERAL), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def adds(options: Sequence[Callable[[_Function], _Function]]) -> Callable[[_Function], _Function]:
    """Return a decorator that adds `options` to a command, in their order."""
    return lambda function: reduce(lambda inner, option: option(inner), reversed(options), function)
