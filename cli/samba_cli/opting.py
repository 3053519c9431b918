"""`sambac opt`: what passes made of a model, as a table or as a text diff."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from pef.text import human_time, plural, table, visible

if TYPE_CHECKING:
    from sambac.opt import PassRun

_NAMED = 5
_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def run_lines(runs: Sequence[PassRun]) -> Iterator[str]:
    """Yield a table of passes, with their times and what they did to the number of operators."""
    yield from table(
        ("pass", "time", "operators", "change"),
        [(run.name, _time(run), str(run.after.operators), _change(run)) for run in runs],
        right=("time", "operators", "change"),
    )


def diff_lines(runs: Sequence[PassRun], colours: bool) -> Iterator[str]:
    """Yield what each pass that changed something changed, then the names of the others."""
    for run in runs:
        if run.changed:
            yield _heading(f"{run.name}: {run.after.operators} operators, {_time(run)}", colours)
            for line in map(visible, run.diff()):
                colour = _COLOURS.get(line[:1]) if colours else None
                yield click.style(line, fg=colour) if colour else line
            yield ""
    idle = dict.fromkeys(run.name for run in runs if not run.changed)
    if idle:
        few = len(idle) <= _NAMED
        yield f"No change by {', '.join(idle) if few else plural(len(idle), 'pass', 'passes')}."


def _heading(text: str, colours: bool) -> str:
    return click.style(text, bold=True) if colours else text


def _time(run: PassRun) -> str:
    return human_time(run.seconds * 1e6)


def _change(run: PassRun) -> str:
    more = run.after.operators - run.before.operators
    if more:
        return f"{more:+d}"
    return "rewritten" if run.changed else "-"
