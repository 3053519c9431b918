"""`sambac inspect`, `verify` and `diff`: read PEFs and put what they hold into lines.

Lines about what differs fit a terminal of 80 columns. A name that is longer stays whole: it is
there to be copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby, takewhile
from pathlib import Path

import pef
from pef.container import LEAF
from pef.errors import PefError
from pef.files import in_text, write_text
from pef.program import Program
from pef.report import File, Report, page, report
from pef.report.diff import Difference, differences
from pef.text import WIDTH, human_bytes, name_text, plural, sentence_lines

from .targets import check_kind, check_targets


def read_report(path: Path) -> Report:
    """Return the report of the PEF at `path`."""
    with pef.open(path) as file:
        return report(file.program, File(name=path.name, bytes=path.stat().st_size))


def write_page(path: Path, target: Path, against: Path | None) -> str:
    """Write the page of the PEF at `path`, beside another one if there is one; return what to say.

    Raises `Wrong` for a `target` that cannot be written, or is one of the files.
    """
    check_targets([target], [path, against])
    check_kind(target, ".html")
    text = in_text(page(read_report(path), None if against is None else read_report(against)))
    write_text(target, text)
    return f"{target}: {human_bytes(len(text.encode()))}; open it in a browser."


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
    checked = {
        "file": f"header, metadata, padding, {plural(len(segments), 'segment')} ({content})",
        "hashes": f"SHA-256 of the metadata and of {plural(pieces, 'piece')} of content",
        "program": f"references of {sections} and {symbols}, the order of {calls}",
        "memory": f"lifetimes and addresses of {places} in {regions}",
        "plans": plans,
    }
    rows = (line for part, said in checked.items() for line in _beside(part, said))
    return [f"{path} is intact. Checked:", *rows]


def _beside(part: str, said: str) -> Iterator[str]:
    """Yield the lines of what was checked of a part of a file, beside its name."""
    for at, line in enumerate(sentence_lines(said, WIDTH - _BESIDE)):
        yield f"{'' if at else f'{_INDENT}{part}':{_BESIDE}}{line}"


def _verify_plans(path: Path, program: Program) -> str:
    """Return what was checked of the plans in `program`; raise `PefError` if they are wrong."""
    try:
        from sambac.reconstruct.verify import check_plans, device_of
    except ModuleNotFoundError as error:
        return (
            f"not checked: that needs libraries of the compiler, and {error.name} is not installed"
        )
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
    return True, [f"{a} and {b} differ:", *diff_text(found, a.name, b.name)]


_SHOWN = 20
_NAMES = 8
_INDENT = "  "
_ARROW = "-> "
_BESIDE = 11


def diff_text(found: Sequence[Difference], a: str, b: str) -> Iterator[str]:
    """Yield the differences by part; of what is very much only the first is shown."""
    for part, group in groupby(found, key=lambda row: row.part):
        rows = list(group)
        yield f"{part} ({len(rows):,})"
        for name, only in (
            (a, [row.item for row in rows if not row.field and row.b is None]),
            (b, [row.item for row in rows if not row.field and row.a is None]),
        ):
            if only:
                yield from _wrapped(f"only in {name} ({len(only):,}): {_some(only)}")
        changed = [row for row in rows if row.field]
        for row in changed[:_SHOWN]:
            yield from _change(row)
        if len(changed) > _SHOWN:
            yield f"{_INDENT}... {len(changed) - _SHOWN:,} more; --json has all"


def _wrapped(sentence: str) -> Iterator[str]:
    """Yield the lines of `sentence`, those after the first further in."""
    lines = sentence_lines(sentence, WIDTH - 2 * len(_INDENT))
    yield from (f"{_INDENT * (1 + bool(at))}{line}" for at, line in enumerate(lines))


def _some(names: Sequence[str]) -> str:
    more = " ..." if len(names) > _NAMES else ""
    return " ".join(map(name_text, names[:_NAMES])) + more


def _change(row: Difference) -> Iterator[str]:
    """Yield one line, or where they are long one for the field and each of its values."""
    where = f"{name_text(row.item)}: {row.field}" if row.item else row.field
    left, right = _values(row.a, row.b)
    line = f"{_INDENT}{where}: {left} {_ARROW}{right}"
    if len(line) <= WIDTH:
        yield line
        return
    yield f"{_INDENT}{where}"
    left, right = _cut(left, right, WIDTH - 2 * len(_INDENT) - len(_ARROW))
    yield f"{_INDENT * 2}{left}"
    yield f"{_INDENT * 2}{_ARROW}{right}"


def _values(a: object, b: object) -> tuple[str, str]:
    """Return two values in words, of lists the first elements that differ."""
    if isinstance(a, list) and isinstance(b, list):
        first = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), None)
        start = min(len(a), len(b)) if first is None else first
        return (_element(a, start), _element(b, start))
    return _value(a), _value(b)


def _element(values: Sequence[object], start: int) -> str:
    if start >= len(values):
        return f"{len(values)} of them"
    return f"{len(values)} of them, number {start} is {_value(values[start])}"


def _value(value: object) -> str:
    return "nothing" if value is None else json.dumps(value, ensure_ascii=False)


def _cut(a: str, b: str, width: int) -> tuple[str, str]:
    """Return what of two texts has room; of long ones what begins shortly before they differ."""
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    start = max(0, same - width // 4) if same > width // 2 and max(len(a), len(b)) > width else 0

    def cut(text: str) -> str:
        rest = f"...{text[start:]}" if start else text
        return rest if len(rest) <= width else f"{rest[: width - 3]}..."

    return cut(a), cut(b)
