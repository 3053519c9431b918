"""A report on a terminal: the parts of its text, in tables as wide as the screen."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from io import StringIO

import click
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pef.report import Part, Report, summary
from pef.text import Table, plural

_MARGIN = 2
_ROWS = 1000  # more are no reading on a screen, and slow to draw
_FOLDED = 30  # longer cells may be folded; they get so many characters at least
_LAST_FOLDED = 20  # those of the last column, that of names
_BARS = (12, 8, 4)  # how long bars may be, the first length with which nothing has to go
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def drawn(report: Report | None, parts: Iterable[Part], width: int | None = None) -> str:
    """Return what is printed on a screen of so many columns; None is the width of the terminal.

    In front of the `parts` stands the summary of a `report` that is shown as a whole.
    """
    console = Console(
        file=StringIO(), width=width or Console().width, force_terminal=True, highlight=False
    )
    pieces = [Text(summary(report))] if report is not None else []
    with console.capture() as captured:
        for piece in pieces:
            console.print(piece)
        for number, part in enumerate(parts):
            if number or pieces:
                console.print()
            _print_part(console, *part)
    return captured.get()


def say(text: str, *, paged: bool) -> None:
    """Print `text`, through the user's pager where it is longer than the screen."""
    if paged and text.count("\n") >= Console().height:
        # Show colours, leave at once where all fits, and leave the text on the screen.
        os.environ.setdefault("LESS", "FRX")
        click.echo_via_pager(text, color=True)
    else:
        click.echo(text, nl=False, color=True)


def _print_part(console: Console, title: str, body: Table | Iterable[str]) -> None:
    """Print a part; a table that is too wide leaves out columns, lesser ones first."""
    if not isinstance(body, Table):
        console.print(Text(title, "bold"))
        console.print(Text("\n".join(body)))
        return
    layout = _layout(body, console.width)
    hint = f" (no room for {', '.join(layout.gone)})" if layout.gone else ""
    console.print(Text.assemble((title, "bold"), (hint, "dim")))
    console.print(_drawn(body, layout) if body.rows else Text("  (none)"))
    if more := len(body.rows[_ROWS:]):
        console.print(Text(f"{plural(more, 'row')} more: the log and --json have all", "dim"))


@dataclass(frozen=True)
class _Fitting:
    """The columns that are left out, the length of bars, and whether all cells then fit."""

    gone: Collection[str]
    bar: int
    whole: bool


def _layout(table: Table, width: int) -> _Fitting:
    """Return how `table` fits in `width`."""
    for bar in _BARS if table.shares else (0,):
        fitting = _fitting(table, width, bar)
        if not fitting.gone:
            break
    return fitting


def _fitting(table: Table, width: int, bar: int) -> _Fitting:
    """Leave out lesser columns of `table`, then others between the first and the last one."""
    widths = {
        header: min(_widest(table, at), _least(table, at))
        + _MARGIN
        + (bar + _MARGIN if header in table.shares else 0)
        for at, header in enumerate(table.headers)
    }
    gone: dict[str, int] = {}
    for header in dict.fromkeys((*table.lesser, *table.headers[1:-1])):
        if sum(widths.values()) <= width:
            break
        gone[header] = widths.pop(header)
    for header, wide in reversed(gone.copy().items()):  # what there is room for without wider ones
        if sum(widths.values()) + wide <= width:
            widths[header] = gone.pop(header)
    return _Fitting(list(gone), bar, sum(widths.values()) <= width)


def _least(table: Table, at: int) -> int:
    return _LAST_FOLDED if at == len(table.headers) - 1 else _FOLDED


def _widest(table: Table, at: int) -> int:
    return max(len(table.headers[at]), *(len(row[at]) for row in table.rows), 0)


def _drawn(table: Table, layout: _Fitting) -> RichTable:
    drawn = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, _MARGIN - 1, 0, 0), show_edge=False, header_style="dim"
    )
    for at, header in enumerate(table.headers):
        if header in layout.gone:
            continue
        drawn.add_column(
            header,
            justify="right" if header in table.right else "left",
            # Folded where even so there is no room: a number that is cut short is another one.
            no_wrap=layout.whole and _widest(table, at) <= _least(table, at),
            overflow="fold",
        )
        if header in table.shares:
            drawn.add_column("", no_wrap=True, min_width=layout.bar)
    for number, row in enumerate(table.rows[:_ROWS]):
        drawn.add_row(*_cells(table, layout, number, row))
    return drawn


def _cells(table: Table, layout: _Fitting, number: int, row: Iterable[str]) -> Iterator[Text]:
    for header, cell in zip(table.headers, row, strict=True):
        if header in layout.gone:
            continue
        yield Text(cell)
        if header in table.shares:
            share = table.shares[header][number]
            yield Text(_bar(share, layout.bar), "red" if share > 1 else "cyan")


def _bar(share: float, width: int) -> str:
    """Return a bar of at most `width` characters; something is seen of all that is not nothing."""
    eighths = min(round(share * width * 8), width * 8)
    eighths = max(eighths, 1 if share > 0 else 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
