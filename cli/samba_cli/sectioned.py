"""Options of commands: each has one value, and a heading of the help to stand under."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import click

from .other_words import explained

if TYPE_CHECKING:
    from click.core import ParameterSource
    from click.parser import _OptionParser

_GENERAL = "Options"
_Function = TypeVar("_Function", bound=Callable[..., object])


class SingleOption(click.Option):
    """An option that refuses an empty value, and a second value that differs from its first.

    click takes the last value of an option that is not `multiple`, and forgets the others. Empty
    text, which a shell makes of a variable that is not set, would mean what the option means that
    is not given.
    """

    def add_to_parser(self, parser: _OptionParser, ctx: click.Context) -> None:
        """Let `parser` keep all values of an option that takes one."""
        super().add_to_parser(parser, ctx)
        known = {**parser._short_opt, **parser._long_opt}  # click has no public way to them
        for spelling in self.opts:
            if known[spelling].action == "store":
                known[spelling].action = "append"

    def consume_value(
        self, ctx: click.Context, opts: Mapping[str, Any]
    ) -> tuple[Any, ParameterSource]:
        """Return the one value of the option, and where it comes from."""
        value, source = super().consume_value(ctx, opts)
        if any(_is_blank(item) for item in (value if isinstance(value, list) else [value])):
            said = f"is empty; give {self.make_metavar(ctx)} or leave it out."
            raise click.UsageError(f"{self.opts[-1]} {said}", ctx)
        if self.multiple or not isinstance(value, list):
            return value, source
        different = next((item for item in value[1:] if item != value[0]), None)
        if different is not None:
            said = f"is given twice, as {value[0]!r} and as {different!r}; give it once."
            raise click.UsageError(f"{self.opts[-1]} {said}", ctx)
        return value[0], source


def _is_blank(value: object) -> bool:
    return isinstance(value, str) and not value.strip()


single_option = partial(click.option, cls=SingleOption)
"""Declares an option of a command, as `click.option` does."""


class SectionOption(SingleOption):
    """An option that stands under a heading of its own in the help."""

    def __init__(self, *arguments: Any, section: str = _GENERAL, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.section = section


class SectionedCommand(click.Command):
    """A command that groups its options by section, in the order in which sections appear.

    `elsewhere` are options of other tools, and what stands for them here.
    """

    elsewhere: ClassVar[Mapping[str, str]] = {}

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse `args`; an option that there is not is told with what stands for it."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            known = {each for parameter in self.get_params(ctx) for each in parameter.opts}
            raise explained(error, self.elsewhere, known) from error

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
