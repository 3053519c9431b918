"""A report on a terminal: the parts of its text, in tables as wide as the screen."""

from __future__ import annotations

from collections.abc import Collection

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from pef.report import Report, parts, summary
from pef.text import Table, plural

_MARGIN = 2
_ROWS = 1000  # more are no reading on a screen, and slow to draw
_FOLDED = 30  # longer cells may be folded; they get so many characters at least


def show(report: Report, console: Console) -> None:
    """Print `report` on `console`; tables that are too wide for it leave out lesser columns."""
    console.print(Text(summary(report)))
    for title, body in parts(report):
        console.print()
        if isinstance(body, Table):
            gone = _left_out(body, console.width)
            hint = f" (no room for {', '.join(gone)})" if gone else ""
            console.print(Text.assemble((title, "bold"), (hint, "dim")))
            console.print(_drawn(body, gone) if body.rows else Text("  (none)"))
            if more := len(body.rows[_ROWS:]):
                console.print(
                    Text(f"{plural(more, 'row')} more: the log and --json have all", "dim")
                )
        else:
            console.print(Text(title, "bold"))
            console.print(Text("\n".join(body)))


def _left_out(table: Table, width: int) -> list[str]:
    """Return the headers of the columns that do not fit in `width`."""
    widths = {
        header: min(_widest(table, at), _FOLDED) + _MARGIN
        for at, header in enumerate(table.headers)
    }
    gone: list[str] = []
    for header in table.lesser:
        if sum(widths.values()) <= width:
            break
        gone.append(header)
        del widths[header]
    return gone


def _widest(table: Table, at: int) -> int:
    return max(len(table.headers[at]), *(len(row[at]) for row in table.rows), 0)


def _drawn(table: Table, gone: Collection[str]) -> RichTable:
    drawn = RichTable(
        box=box.SIMPLE_HEAD, padding=(0, _MARGIN - 1, 0, 0), show_edge=False, header_style="dim"
    )
    for at, header in enumerate(table.headers):
        if header not in gone:
            drawn.add_column(
                header,
                justify="right" if header in table.right else "left",
                no_wrap=_widest(table, at) <= _FOLDED,
                overflow="fold",
            )
    for row in table.rows[:_ROWS]:
        cells = zip(table.headers, row, strict=True)
        drawn.add_row(*(Text(cell) for header, cell in cells if header not in gone))
    return drawn
