"""What of a report is shown: the sections that a pattern means, the slowest, their symbols."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from pef.report import Part, Report, parts, section_parts, symbol_parts
from pef.wording import did_you_mean

from .shell import Wrong

_IDS = re.compile(r"([0-9]{1,18})(?:\.\.([0-9]{1,18}))?")


@dataclass(frozen=True)
class View:
    """What somebody asks for; without anything, all of a report.

    `sections` are words with commas between them: ids (`3`, `7..9`), types, or names in which *
    and ? stand for others. `top` takes so many of what is left: the slowest sections, or with
    `symbols` the largest symbols. `symbols` shows symbols alone, those of the sections if some were
    asked for.
    """

    sections: str | None = None
    top: int | None = None
    symbols: bool = False

    @property
    def whole(self) -> bool:
        """Whether it asks for all of a report."""
        return self == View()


def shown(report: Report, view: View) -> Iterator[Part]:
    """Yield the parts of `report` that `view` asks for.

    Raises `Wrong` for a pattern that means no section.
    """
    if view.whole:
        return parts(report)
    less = narrowed(report, view)
    return (
        symbol_parts(less)
        if view.symbols
        else section_parts(less, inside=view.sections is not None)
    )


def rows(report: Report, view: View) -> Mapping[str, object]:
    """Return what `view` asks for as plain data; see `shown`."""
    if view.whole:
        return report
    less = narrowed(report, view)
    return {"symbols": less["symbols"]} if view.symbols else {"sections": less["sections"]}


def narrowed(report: Report, view: View) -> Report:
    """Return `report` with only the sections, or symbols, that `view` asks for."""
    less = report.copy()
    sections = report["sections"]
    if view.sections is not None:
        chosen = _meant(report, view.sections)
        sections = [row for row in sections if row["id"] in chosen]
    if view.symbols:
        symbols = report["symbols"]
        if view.sections is not None:
            touched = {
                symbol
                for row in sections
                for symbol in (*row["inputs"], *row["weights"], *row["outputs"])
            }
            symbols = [row for row in symbols if row["id"] in touched]
        if view.top is not None:
            symbols = sorted(symbols, key=lambda row: (-row["bytes"], row["id"]))[: view.top]
        less["symbols"] = symbols
    elif view.top is not None:
        calls = Counter(report["schedule"])
        times = {row["id"]: row["latency_us"] * calls[row["id"]] for row in sections}
        sections = sorted(sections, key=lambda row: (-times[row["id"]], row["id"]))[: view.top]
    less["sections"] = sections
    return less


def _meant(report: Report, pattern: str) -> set[int]:
    """Return the ids of the sections that `pattern` means."""
    found: set[int] = set()
    for word in (word.strip() for word in pattern.split(",")):
        meant = _of_word(report, word)
        if not meant:
            raise Wrong(f"--sections: {_unknown(report, word)}")
        found |= meant
    return found


def _of_word(report: Report, word: str) -> set[int]:
    if numbers := _IDS.fullmatch(word):
        first = int(numbers[1])
        last = first if numbers[2] is None else int(numbers[2])
        return {row["id"] for row in report["sections"] if first <= row["id"] <= last}
    return {
        row["id"]
        for row in report["sections"]
        if row["type"] == word or row["name"] == word or fnmatchcase(row["name"], word)
    }


def _unknown(report: Report, word: str) -> str:
    sections = report["sections"]
    last = len(sections) - 1
    if not sections:
        return "the program has no sections."
    if _IDS.fullmatch(word):
        return f"there is no section {word}; ids are 0..{last}."
    names = [name for row in sections for name in (row["type"], row["name"])]
    types = ", ".join(dict.fromkeys(row["type"] for row in sections))
    return (
        f"no section is meant by '{word}'{did_you_mean(word, names)}; give ids (0..{last}), types "
        f"({types}), or names, in which * and ? stand for other letters."
    )
