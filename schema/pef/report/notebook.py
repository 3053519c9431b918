"""Programs and tables as a notebook shows them: a few lines of HTML, without scripts.

Names come from files that nobody vouches for, so that every text is escaped, and what would turn it
around is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape

from pef.program import Program
from pef.text import Table, human_bytes, human_time, name_text, plural, visible

from .building import report
from .rendering_summary import summary, whole
from .rows import Report

_ROWS = 10
_BAR = "display:inline-block;height:.7em;background:#3677c8;width:{:.1f}em"
_BEFORE_BAR = "display:inline-block;min-width:6em"  # so that bars of a column begin in line
_LEFT, _RIGHT = "text-align:left;white-space:nowrap", "text-align:right"


def program_html(program: Program) -> str:
    """Return what a notebook shows of a program: its summary, slowest sections, and regions."""
    found = report(program)
    parts = [f"<p>{_shown(summary(found))}</p>"]
    parts += [f"<p><b>Warning:</b> {_shown(warning)}</p>" for warning in found["warnings"]]
    parts += [
        table_html("Sections, the slowest first (time and units are modelled)", _slowest(found)),
        table_html("Regions", _regions(found)),
    ]
    return "".join(parts)


def table_html(title: str, table: Table, most: int = _ROWS) -> str:
    """Return the first rows of `table` under a title, with bars where it has shares."""
    head = "".join(
        f'<th style="{_align(table, header)}">{_shown(header)}</th>' for header in table.headers
    )
    rows = "".join(
        f"<tr>{''.join(_cells(table, at, row))}</tr>" for at, row in enumerate(table.rows[:most])
    )
    left = len(table.rows) - most
    more = f"<p>{escape(plural(left, 'row'))} more</p>" if left > 0 else ""
    return f"<p><b>{_shown(title)}</b></p><table><tr>{head}</tr>{rows}</table>{more}"


def _shown(text: str) -> str:
    return escape(visible(text))


def _cells(table: Table, at: int, row: Sequence[str]) -> Iterator[str]:
    for header, cell in zip(table.headers, row, strict=True):
        shown = _shown(cell)
        if header in table.shares:
            share = min(table.shares[header][at], 1.0)
            bar = f'<span style="{_BAR.format(6 * share)}"></span>'
            shown = f'<span style="{_BEFORE_BAR}">{shown}</span>{bar}'
        yield f'<td style="{_align(table, header)}">{shown}</td>'


def _align(table: Table, header: str) -> str:
    right = header in table.right and header not in table.shares
    return _RIGHT if right else _LEFT


def _slowest(found: Report) -> Table:
    """Return the sections of a run, or a step, by the time of all their calls."""
    calls = Counter(whole(found).calls)
    sections = found["sections"]
    times = {number: count * sections[number]["latency_us"] for number, count in calls.items()}
    ordered = sorted(times, key=lambda number: (-times[number], number))
    most = max(times.values(), default=0.0)
    rows = [
        (
            str(number),
            human_time(times[number]),
            row["limited_by"] or "-",
            f"{row['pcus']:,}",
            f"{row['pmus']:,}",
            f"{row['operators']:,}",
            name_text(row["name"]),
        )
        for number in ordered
        for row in (sections[number],)
    ]
    headers = ("id", "time", "limited by", "PCUs", "PMUs", "operators", "name")
    shares = {"time": [times[number] / most for number in ordered]} if most else {}
    return Table(headers, rows, ("id", "time", "PCUs", "PMUs", "operators"), shares=shares)


def _regions(found: Report) -> Table:
    rows = [
        (row["name"], human_bytes(row["used"]), human_bytes(row["capacity"]))
        for row in found["regions"]
    ]
    shares = {"used": [row["used"] / row["capacity"] for row in found["regions"]]}
    return Table(("region", "used", "capacity"), rows, ("used", "capacity"), shares=shares)
