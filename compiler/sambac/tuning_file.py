"""Tuning files: which formulations a host was measured to run fastest, as TOML.

    version = 1

    [host]                       # where it was measured
    processor = "..."
    cores = 2
    threads = 1
    features = ["nchwc16"]

    [libraries]                  # with what
    onnxruntime = "1.31.1"
    sambaflow = "0.1.0"

    [[choice]]
    operator = "filter gradient"
    dtype = "float32"
    sizes = "image 16x64x8x8, signal 16x64x8x8, kernel 3x3, pads 1x1"
    chosen = "runs of channels"
    guess = "runs of images"     # what is taken without this entry
    count = 4                    # how often the model asks
    [choice.times]               # microseconds
    "runs of channels" = 310.2
    "runs of images" = 402.9

Reading one refuses what it does not know, all of it at once. Only `operator`, `dtype`, `sizes` and
`chosen` decide; the rest is for people.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from pef.files import text_of, write_text
from pef.foreign import reading, why
from pef.wording import did_you_mean, listed

from .errors import CompileError
from .graph.decisions import Question
from .ops.gradients.choice_points import CHOICE_POINTS
from .ops.gradients.formulations import DTYPES, AnyPoint, parse_sizes

VERSION = 1
_MOST_PROBLEMS = 8
_MOST = sys.float_info.max
_CHOSEN = "float32"
"""The type of numbers for which a program may have one formulation or another."""
_BARE = re.compile("[A-Za-z0-9_-]+")  # names that stand in a file without quotes


@dataclass(frozen=True)
class MeasuredHost:
    """Where formulations were measured: what a person needs to tell hosts apart."""

    processor: str = ""
    cores: int = 0
    threads: int = 0
    features: tuple[str, ...] = ()


@dataclass(frozen=True)
class Measured:
    """What was measured for a question that comes up `count` times: microseconds by formulation."""

    question: Question
    chosen: str
    guess: str = ""
    times: Mapping[str, float] = field(default_factory=dict)
    count: int = 1

    @property
    def gain(self) -> float:
        """The time of what was chosen over that of the guess; 1 where one was not measured."""
        if self.chosen not in self.times or self.guess not in self.times:
            return 1.0
        return self.times[self.chosen] / self.times[self.guess]


@dataclass(frozen=True)
class HostTuning:
    """The content of a tuning file; for `left` more choices of the model there was no time."""

    choices: tuple[Measured, ...]
    host: MeasuredHost = MeasuredHost()
    libraries: Mapping[str, str] = field(default_factory=dict)
    left: int = 0

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file that `sambac compile --tuning` reads, whole or not at all."""
        write_text(Path(path), tuning_text(self))

    @property
    def chosen(self) -> dict[Question, str]:
        """The formulation for each question."""
        return {each.question: each.chosen for each in self.choices}


def tuning_text(tuning: HostTuning) -> str:
    """Return `tuning` as the text of a file."""
    host = tuning.host
    lines = [
        "# Written by sambac tune, for sambac compile --tuning. Times are in microseconds.",
        f"version = {VERSION}",
        "",
        "[host]",
        f"processor = {_text(host.processor)}",
        f"cores = {host.cores}",
        f"threads = {host.threads}",
        f"features = [{', '.join(map(_text, host.features))}]",
        "",
        "[libraries]",
        *(f"{_key(name)} = {_text(version)}" for name, version in sorted(tuning.libraries.items())),
    ]
    for each in tuning.choices:
        lines += ["", *_choice_lines(each)]
    return "\n".join(lines) + "\n"


def _choice_lines(each: Measured) -> Iterator[str]:
    yield "[[choice]]"
    yield from (f"{name} = {_text(value)}" for name, value in each.question._asdict().items())
    yield f"chosen = {_text(each.chosen)}"
    if each.guess:
        yield f"guess = {_text(each.guess)}"
    yield f"count = {each.count}"
    if each.times:
        yield "[choice.times]"
        yield from (f"{_text(name)} = {time:.1f}" for name, time in each.times.items())


def _text(word: str) -> str:
    # TOML reads what JSON writes, but for DEL as it is and a character as two halves.
    return json.dumps(word, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def read_tuning(path: str | os.PathLike[str]) -> HostTuning:
    """Return the content of the tuning file at `path`.

    Raises `CompileError` for a file that is none, and with all that is wrong in one.
    """
    path = Path(path)
    try:
        content = text_of(path, "utf-8-sig")  # some editors begin files with a mark
    except OSError as error:
        raise CompileError(f"{path}: cannot read the tuning file: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise CompileError(f"{path}: a tuning file is a TOML file; this is not text.") from error
    with reading(lambda error: CompileError(f"{path}: not a valid TOML file: {why(error)}.")):
        table = tomllib.loads(content)
    reader = _TuningReader()
    tuning = reader.tuning(table)
    if reader.problems:
        problems = listed(reader.problems, _MOST_PROBLEMS)
        raise CompileError(f"{path}: {problems}. `sambac tune` writes such files.")
    return tuning


_Table: TypeAlias = dict[str, Any]
_Kind: TypeAlias = tuple[str, Callable[[Any], bool]]
"""What a value of the file is to be, in words, and whether one is."""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MOST


def _all(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(fits, value))


def _values(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


_is_text, _is_table = (
    (lambda value: isinstance(value, str)),
    (lambda value: isinstance(value, dict)),
)
_TEXT: _Kind = ("a text", _is_text)
_TABLE: _Kind = ("a table", _is_table)
_COUNT: _Kind = ("a whole number", lambda value: _is_number(value) and isinstance(value, int))
_FILE = {
    "version": _COUNT,
    "host": _TABLE,
    "libraries": ("a table of texts", _values(_is_text)),
    "choice": ("tables, [[choice]]", _all(_is_table)),
}
_HOST = {
    "processor": _TEXT,
    "cores": _COUNT,
    "threads": _COUNT,
    "features": ("a list of texts", _all(_is_text)),
}
_CHOICE = {
    "operator": _TEXT,
    "dtype": _TEXT,
    "sizes": _TEXT,
    "chosen": _TEXT,
    "guess": _TEXT,
    "count": _COUNT,
    "times": ("a table of numbers", _values(_is_number)),
}


class _TuningReader:
    """Reads a tuning file and collects what is wrong with it."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def tuning(self, table: _Table) -> HostTuning:
        """Return the content of `table`, as far as it is right."""
        version = table.get("version", VERSION)
        if version != VERSION:
            self.problems.append(f"its version is {version!r}, this sambac knows {VERSION}")
            return HostTuning(())
        found = self._fields(table, _FILE, "", ("version",))
        host = self._fields(found.get("host", {}), _HOST, "host: ")
        host["features"] = tuple(host.get("features", ()))
        rows = enumerate(found.get("choice", ()), 1)
        choices = [self._choice(row, f"choice {number}: ") for number, row in rows]
        right = tuple(each for each in choices if each is not None)
        self._refuse_twice(right)
        return HostTuning(right, MeasuredHost(**host), found.get("libraries", {}))

    def _refuse_twice(self, choices: Iterable[Measured]) -> None:
        seen: set[Question] = set()
        for each in choices:
            if each.question in seen:
                operator, dtype, sizes = each.question
                self.problems.append(f"the {operator} of {sizes} ({dtype}) is there twice")
            seen.add(each.question)

    def _choice(self, row: _Table, where: str) -> Measured | None:
        """Return an entry; None where something is wrong."""
        before = len(self.problems)
        found = self._fields(row, _CHOICE, where, ("operator", "dtype", "sizes", "chosen"))
        if len(self.problems) == before:
            self._known(found["operator"], CHOICE_POINTS, f"{where}operator")
            self._known(found["dtype"], DTYPES, f"{where}dtype")
            self._chosen_by(found["dtype"], where)
        if len(self.problems) > before:
            return None
        point, times = CHOICE_POINTS[found["operator"]], found.get("times", {})
        guess = [found["guess"]] if found.get("guess") else []
        for name in dict.fromkeys((found["chosen"], *guess, *times)):
            self._known(name, [form.name for form in point.forms], f"{where}{point.name}")
        problem = self._problem(point, found, where)
        if problem is None or len(self.problems) > before:
            return None
        fitting = [form.name for form in point.fitting(problem)]
        if found["chosen"] not in fitting:
            choices = " or ".join(map(repr, fitting))
            self.problems.append(f"{where}{found['chosen']!r} does not fit; choose {choices}")
            return None
        return Measured(
            point.question(problem),
            found["chosen"],
            found.get("guess", ""),
            {name: float(time) for name, time in times.items()},
            found.get("count", 1),
        )

    def _chosen_by(self, dtype: str, where: str) -> None:
        if dtype in DTYPES and dtype != _CHOSEN:
            self.problems.append(
                f"{where}operators have several formulations for {_CHOSEN} alone, which 16-bit "
                f"numbers become before; an entry for {dtype} does nothing"
            )

    def _problem(self, point: AnyPoint, found: _Table, where: str) -> Any:
        """Return the problem that an entry is about; None where its sizes are wrong."""
        before = len(self.problems)
        try:
            sizes = parse_sizes(found["sizes"])
            for name in sizes:
                self._known(name, point.fields, f"{where}sizes")
            return (
                point.pose(sizes, DTYPES[found["dtype"]]) if len(self.problems) == before else None
            )
        except ValueError as error:
            self.problems.append(f"{where}sizes: {error}")
            return None

    def _known(self, name: str, known: Iterable[str], where: str) -> None:
        names = list(known)
        if name not in names:
            self.problems.append(f"{where} {name!r} is not known{did_you_mean(name, names)}")

    def _fields(
        self, table: _Table, known: Mapping[str, _Kind], where: str, wanted: Iterable[str] = ()
    ) -> _Table:
        """Return what is right in a table; those in `wanted` must be there."""
        found: _Table = {}
        for name, value in table.items():
            if name not in known:
                hint = did_you_mean(name, known)
                self.problems.append(f"{where}there is no field {name!r}{hint}")
            elif not known[name][1](value):
                self.problems.append(f"{where}{name} is to be {known[name][0]}")
            else:
                found[name] = value
        self.problems += [f"{where}{name} is missing" for name in wanted if name not in table]
        return found
