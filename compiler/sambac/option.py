"""What is known of an option of a compilation, beside its type and its default.

`sambac.options` says it once, in the field of each option. From there the command derives its
options, the program its record of them, and a program of several models what all must agree on.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, auto
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from pef.arguments import PATH, Kind, told
from pef.symbols import RegionKind
from pef.wording import listed

_KEY = "option"
_GIVEN = "_given"
# More chips do not share the work of one operator, and no region's size leaves the file's range.
_MOST_CHIPS = 4096
_Value = TypeVar("_Value")


class Scope(Enum):
    """Whose an option is: the whole program's, a model's, or a model's that trains."""

    PROGRAM = auto()
    MODEL = auto()
    TRAINING = auto()


@dataclass(frozen=True)
class Spelling:
    """How the command line has an option.

    `help` describes it, and `metavar` stands for its word; `words` are all there are, where they
    are not the option's own `choices`. `read` makes a value of a word, and raises `CompileError`
    for a wrong one. An option that may be repeated has `collect`, which puts the values together.
    Words that name a file are a `path`, which shells complete.
    """

    flag: str
    help: str
    metavar: str | None = None
    words: tuple[str, ...] = ()
    read: Callable[[str], object] = str
    collect: Callable[[Iterable[Any]], object] | None = None
    path: bool = False


def as_it_is(value: object) -> object:
    """Return `value`: the record of an option that is plain data."""
    return value


def file_name(value: str | Path | None) -> object:
    """Return the record of a path: its last part, as a program names no folder of its host."""
    return Path(value).name if value else None


def regions(memory: Mapping[str, str]) -> dict[str, str]:
    """Return the record of regions by tensor, in capitals as `RegionKind` has them."""
    return {name: region.upper() for name, region in memory.items()}


@dataclass(frozen=True)
class Option:
    """What is known of an option: of what `kind` its values are, and whose it is.

    `choices` are all its values, where they are words. `record` makes plain data for the
    producer's record of a value; one that is `brief` is recorded only where something was given.
    `spelling` is that of the command line; without one the option is Python's alone.
    """

    kind: Kind
    scope: Scope
    spelling: Spelling | None = None
    choices: tuple[str, ...] = ()
    record: Callable[[Any], object] = as_it_is
    brief: bool = False


def option(
    default: _Value,
    kind: Kind,
    scope: Scope,
    spelling: Spelling | None = None,
    *,
    choices: tuple[str, ...] = (),
    record: Callable[[Any], object] = as_it_is,
    brief: bool = False,
) -> _Value:
    """Return the field of an option, as `Option` describes it; a dict as default is a fresh one."""
    metadata = {_KEY: Option(kind, scope, spelling, choices, record, brief)}
    if isinstance(default, dict):
        return cast(_Value, field(default_factory=default.copy, metadata=metadata))
    return field(default=default, metadata=metadata)


def file_option(
    scope: Scope, flag: str, help_text: str, *, brief: bool = False
) -> str | os.PathLike[str] | None:
    """Return the field of an option that names a file, and may be left out."""
    spelling = Spelling(flag, help_text, "FILE", path=True)
    return option(None, PATH.or_none(), scope, spelling, record=file_name, brief=brief)


def options_of(declared: Any) -> dict[str, Option]:
    """Return what is known of each option of a dataclass, or of an instance of one."""
    return {each.name: each.metadata[_KEY] for each in fields(declared)}


def noting_given(declared: type[_Value]) -> type[_Value]:
    """Let instances of a dataclass of options know which of them they were given (`given_in`)."""
    names = tuple(options_of(declared))
    begin: Callable[..., None] = declared.__init__

    @wraps(begin)
    def noted(self: object, *values: object, **named: object) -> None:
        object.__setattr__(self, _GIVEN, frozenset((*names[: len(values)], *named)))
        begin(self, *values, **named)

    declared.__init__ = told(noted)  # type: ignore[method-assign]  # the same signature
    return declared


def given_in(options: Any) -> frozenset[str]:
    """Return which options were given, were it as they are by default.

    `dataclasses.replace` gives all, of which those are meant that are not as by default.
    """
    given: frozenset[str] = getattr(options, _GIVEN)
    if given != options_of(options).keys():
        return given
    usual = type(options)()
    return frozenset(name for name in given if getattr(options, name) != getattr(usual, name))


def wrong_values(given: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with options, by name; all are of the types that they are to be."""
    chips = given["n_chips"]
    if chips is not None and chips > _MOST_CHIPS:
        yield f"n_chips (--n-chips) is {chips}; choose one from 1 to {_MOST_CHIPS}."
    yield from _wrong_regions(given["memory"])
    whole = given["sections"] is None and given["mapping"] == "section"
    for name in ("section_breaks", "chip_breaks"):
        if given[name] and not whole:
            yield f"{name}: give no number of sections beside it, and the mapping 'section'."
        yield from _wrong_patterns(name, given[name])


def _wrong_regions(memory: Mapping[str, str]) -> Iterator[str]:
    kinds = tuple(kind.name for kind in RegionKind)
    problems = [
        f"memory: '{name}' is to lie in {region!r}"
        for name, region in memory.items()
        if str(region).upper() not in kinds
    ]
    if problems:
        yield f"{listed(problems)}; choose {' or '.join(kinds)}."


def _wrong_patterns(name: str, patterns: Sequence[str]) -> Iterator[str]:
    for pattern in patterns:
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"{name}: {pattern!r} is no regular expression: {error}."
