"""The options of `sambac compile`: made from what the compiler says of each of its own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from pef.arguments import misfits

from .completing import archs, of_all, optimizers, or_file
from .number_types import Number, WholeNumber, Word
from .other_words import OF_COMPILATIONS
from .sectioned import SectionedCommand, SectionOption
from .shell import FILE, Wrong, needs_compiler

if TYPE_CHECKING:
    from sambac import CompileOptions
    from sambac.option import Option, Spelling

_Spelled = Mapping[str, "tuple[Option, Spelling]"]


class CompileCommand(SectionedCommand):
    """A command with the options of a compilation, which are imported when they are asked for.

    `wanted` are the names of those that the command has; all without it.
    """

    elsewhere = OF_COMPILATIONS

    def __init__(
        self, *arguments: Any, wanted: Collection[str] | None = None, **settings: Any
    ) -> None:
        super().__init__(*arguments, **settings)
        self._wanted = wanted

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters, then the compiler's options."""
        own = super().get_params(ctx)
        with needs_compiler():
            options = _click_options()
        mine = [o for o in options if self._wanted is None or o.name in self._wanted]
        return [*own[:2], *mine, *own[2:]]


def options_from(words: Mapping[str, object]) -> CompileOptions:
    """Return the options in `words`, which click made; raise `Wrong` with all that is wrong."""
    from sambac import CompileError, CompileOptions

    given = {name: word for name, word in words.items() if _is_said(word)}
    spelled = _spelled()
    _refuse_without_train(spelled, given)
    values: dict[str, object] = {}
    problems: list[str] = []
    for name, word in given.items():
        known, spelling = spelled[name]
        try:
            values[name] = _value(spelling, word)
        except CompileError as error:
            problems.append(str(error))
        else:
            problems += misfits(**{spelling.flag: (values[name], known.kind.given or known.kind)})
    if problems:
        raise Wrong("\n".join(problems))
    make: Callable[..., CompileOptions] = CompileOptions
    return make(**values)


def _is_said(word: object) -> bool:
    """Tell whether the command line has an option: zero is a word, too."""
    return word is not None and word is not False and word != ()


def _value(spelling: Spelling, word: object) -> object:
    """Return what `word` means; several words are a tuple. Raises `CompileError` for wrong ones."""
    from sambac import CompileError

    if isinstance(word, str):
        return spelling.read(word)
    if spelling.collect is None or not isinstance(word, tuple):
        return word
    values, problems = [], []
    for text in word:
        try:
            values.append(spelling.read(text))
        except CompileError as error:
            problems.append(f"{spelling.flag} {text}: {error}")
    if problems:
        raise CompileError("\n".join(problems))
    return spelling.collect(values)


def _spelled() -> dict[str, tuple[Option, Spelling]]:
    """Return the compiler's options that the command line has, with their spelling."""
    from sambac.option import options_of
    from sambac.options import CompileOptions

    known = options_of(CompileOptions)
    return {name: (each, each.spelling) for name, each in known.items() if each.spelling}


def _refuse_without_train(spelled: _Spelled, given: Mapping[str, object]) -> None:
    """Raise `Wrong` for options that say how to train where nothing says to train."""
    from sambac.option import Scope

    for_training = (name for name in given if spelled[name][0].scope is Scope.TRAINING)
    flags = [spelled[name][1].flag for name in for_training]
    if flags and "train" not in given:
        raise Wrong(f"{', '.join(flags)}: of use only in training; add --train, or leave it out.")


def _click_options() -> list[click.Option]:
    from sambac.option import Scope
    from sambac.options import CompileOptions

    defaults = {field.name: field.default for field in fields(CompileOptions)}
    found: list[click.Option] = []
    for name, (each, spelling) in _spelled().items():
        default = defaults[name]
        choices = spelling.words or each.choices
        shows = isinstance(default, str) and not spelling.words
        option = SectionOption(
            (spelling.flag, name),
            section="Training" if each.scope is Scope.TRAINING else "Options",
            help=spelling.help,
            metavar=spelling.metavar,
            is_flag=isinstance(default, bool),
            multiple=spelling.collect is not None,
            default=default if shows else None,
            show_default=shows,
            type=_click_type(spelling, choices) if not isinstance(default, bool) else None,
            shell_complete=_ANSWERS.get(spelling.flag),
        )
        found.append(option)
    return found


_ANSWERS = {"--arch": or_file(archs), "--optimizer": of_all(optimizers)}
"""What shells are answered for options whose words no type of click knows."""


def _click_type(spelling: Spelling, choices: tuple[str, ...]) -> click.ParamType[Any]:
    if choices:
        return Word(choices)
    if spelling.path:
        return FILE
    if spelling.read is int:
        return WholeNumber()
    return Number() if spelling.read is float else click.STRING
