"""`sambac inspect`, `verify` and `diff`: read PEFs and put what they hold into lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import pef
from pef.container import LEAF
from pef.errors import PefError
from pef.program import Program
from pef.report import File, Report, report
from pef.report.diff import Difference, differences
from pef.text import human_bytes, name_text, plural

_SHOWN = 20
_NAMES = 8
_LONGEST = 70


def read_report(path: Path) -> Report:
    """Return the report of the PEF at `path`."""
    with pef.open(path) as file:
        return report(file.program, File(name=path.name, bytes=path.stat().st_size))


def json_lines(data: Mapping[str, object]) -> Iterator[str]:
    """Yield `data` as JSON that is quick to write and easy to read: a row of a list is a line."""
    yield "{"
    left = len(data)
    for key, value in data.items():
        left -= 1
        comma = "," if left else ""
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{_json(key)}: ["
            yield ",\n".join(f"  {_json(row)}" for row in value)
            yield f"]{comma}"
        else:
            yield f"{_json(key)}: {_json(value)}{comma}"
    yield "}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def verify_lines(path: Path) -> list[str]:
    """Return what was checked of the PEF at `path`; raise `PefError` with all its problems."""
    program = pef.verify(path)
    plans = _verify_plans(path, program)
    segments = program.segments
    pieces = sum(-(-segment.size // LEAF) for segment in segments)
    content = human_bytes(sum(segment.size for segment in segments))
    sections = plural(len(program.sections), "section")
    calls = plural(len(program.schedule), "call")
    symbols = plural(len(program.symbols), "symbol")
    places = plural(len(program.allocations), "allocation")
    regions = plural(len(program.regions), "region")
    return [
        f"{path} is intact. Checked:",
        f"  file     header, metadata, padding, {plural(len(segments), 'segment')} ({content})",
        f"  hashes   SHA-256 of the metadata and of {plural(pieces, 'piece')} of content",
        f"  program  references of {sections} and {symbols}, the order of {calls}",
        f"  memory   lifetimes and addresses of {places} in {regions}",
        f"  plans    {plans}",
    ]


def _verify_plans(path: Path, program: Program) -> str:
    """Return what was checked of the plans in `program`; raise `PefError` if they are wrong."""
    try:
        from sambac.verify import check_plans, device_of
    except ModuleNotFoundError as error:
        return f"not checked: that needs what compiling needs, and {error.name} is not installed"
    if problems := check_plans(program):
        raise PefError.listing(f"{path} is undamaged, but its plans are wrong", problems)
    groups = plural(sum(len(section.groups) for section in program.sections), "fusion group")
    device = name_text(program.arch)
    limits = f"limits of {device}" if device_of(program) else f"limits of {device} not known here"
    return f"{groups}, sections and memory, rebuilt from the operators; {limits}"


def diff_lines(a: Path, b: Path, as_json: bool) -> tuple[bool, list[str]]:
    """Return whether two PEFs differ, and the lines that say in what."""
    with pef.open(a) as left, pef.open(b) as right:
        found = differences(left, right)
    if as_json:
        rows = [asdict(difference) for difference in found]
        return bool(found), list(json_lines({"equal": not found, "differences": rows}))
    if not found:
        return False, [f"{a} and {b} hold the same."]
    return True, [f"{a} and {b} differ:", *_diff_text(found, a.name, b.name)]


def _diff_text(found: Sequence[Difference], a: str, b: str) -> Iterator[str]:
    """Yield the differences by part; of what is very much only the first is shown."""
    for part, group in groupby(found, key=lambda row: row.part):
        rows = list(group)
        yield f"{part} ({len(rows):,})"
        for name, only in (
            (a, [row.item for row in rows if not row.field and row.b is None]),
            (b, [row.item for row in rows if not row.field and row.a is None]),
        ):
            if only:
                yield f"  only in {name} ({len(only):,}): {_some(only)}"
        changed = [row for row in rows if row.field]
        yield from (f"  {_change(row)}" for row in changed[:_SHOWN])
        if len(changed) > _SHOWN:
            yield f"  ... {len(changed) - _SHOWN:,} more; --json has all"


def _some(names: Sequence[str]) -> str:
    more = " ..." if len(names) > _NAMES else ""
    return " ".join(map(name_text, names[:_NAMES])) + more


def _change(row: Difference) -> str:
    where = f"{name_text(row.item)}: {row.field}" if row.item else row.field
    left, right = _values(row.a, row.b)
    return f"{where}: {left} -> {right}"


def _values(a: object, b: object) -> tuple[str, str]:
    """Return two values in short, lists from their first difference on."""
    if isinstance(a, list) and isinstance(b, list):
        first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        start = min(len(a), len(b)) if first is None else first
        return (_short_list(a, start), _short_list(b, start))
    return _short(a), _short(b)


def _short_list(values: Sequence[object], start: int) -> str:
    if start >= len(values):
        return f"{len(values)} of them"
    return f"{len(values)} of them, number {start} is {_short(values[start])}"


def _short(value: object) -> str:
    text = "nothing" if value is None else _json(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
