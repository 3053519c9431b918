"""`sambac explain`: why a PEF is planned as it is, as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

import pef
from pef.errors import PefError
from pef.text import visible
from sambac.explain import Explanation, explain

from .shell import prose_width


def explained_lines(path: Path, name: str | None, as_json: bool) -> Iterator[str]:
    """Yield why the PEF at `path`, or what `name` means in it, is planned as it is.

    Raises `PefError` for a file that cannot be explained, or a name without a meaning.
    """
    with pef.open(path) as file:
        for stored in file.program.programs:
            file.check(stored.graph)
        try:
            found = explain(file.program, name)
        except PefError as error:
            raise PefError(f"{path}: {error}", error.problems) from None
    if as_json:
        yield visible(json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=1))
        return
    yield from _lines(found, prose_width())


def _lines(found: tuple[Explanation, ...], width: int) -> Iterator[str]:
    for number, each in enumerate(found):
        if number:
            yield ""
        for line in map(visible, each.lines(width)):
            # Styles go where nobody looks at a terminal.
            yield line if line.startswith(" ") else click.style(line, bold=bool(line))
