"""`sambac explain`: why a PEF is planned as it is, as lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from shutil import get_terminal_size

import pef
from pef.errors import PefError
from pef.text import WIDTH
from sambac.explain import Explanation, explain

from .shell import is_terminal

_WIDEST = 110  # longer lines are hard to read


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
        yield json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=1)
        return
    width = get_terminal_size().columns if is_terminal(sys.stdout) else WIDTH
    yield from _lines(found, min(width, _WIDEST))


def _lines(found: tuple[Explanation, ...], width: int) -> Iterator[str]:
    for number, each in enumerate(found):
        if number:
            yield ""
        yield from each.lines(width)
