"""What differs between two PEFs, as lines that fit a terminal of 80 columns.

A name that is longer stays whole: it is there to be copied.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby, takewhile

from pef.report.diff import Difference
from pef.text import WIDTH, name_text, sentence_lines

_SHOWN = 20
_NAMES = 8
_INDENT = "  "
_ARROW = "-> "


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
