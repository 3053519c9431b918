"""Numbers, names and tables as text that a person reads and a program can read back.

A table is a header line, a rule and rows. Columns are separated by two spaces or more; a cell
holds no two spaces in a row except inside a JSON string, which is how names that would confuse a
reader are written. The last column is not padded, so one long name widens nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# What is wrapped fits a terminal of 80 columns.
WIDTH = 79
# Without blanks, quotes and control characters, and without what separates items in a cell.
_ORDINARY = r"[^\s\x00-\x1f\x7f-\xa0\"=,()\[\]"
_PLAIN_NAME = re.compile(rf"{_ORDINARY}+-]{_ORDINARY}]*")
_WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')
_NUMBERED = re.compile(r"([A-Za-z_]+)(0|[1-9][0-9]{0,17})")
_WHOLE = re.compile("[+-]?[0-9]{1,4000}")  # Python reads no longer ones
_DECIMAL = re.compile(
    r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE
)
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def whole_of(text: str) -> int | None:
    """Return the whole number that `text` is, None if it is none: `7`, `-1`.

    What Python alone takes for one is none: `1_0`, ` 1`, digits of other scripts.
    """
    return int(text) if _WHOLE.fullmatch(text) else None


def number_of(text: str) -> float | None:
    """Return the number that `text` is, likewise: `0.01`, `1e-3`, `.5`, `inf`, `nan`."""
    return float(text) if _DECIMAL.fullmatch(text) else None


def human_bytes(count: int) -> str:
    """Return `count` bytes with three digits or so: `588 KiB`, `97.5 MiB`."""
    size = float(count)
    for unit in _UNITS:
        if size < 1023.5 or unit == _UNITS[-1]:
            break
        size /= 1024
    if unit == "B":
        return f"{count} B"
    return f"{size:.{0 if size >= 100 else 1 if size >= 10 else 2}f} {unit}"


def human_size(count: int, shape: Sequence[int | str | None] | None) -> str:
    """Return the size of a tensor; `open` where only a run knows it, which files store as 0."""
    known = count or (shape is not None and 0 in shape)
    return human_bytes(count) if known else "open"


def human_time(microseconds: float) -> str:
    """Return a duration in the unit that suits it: `3.42 ms`."""
    for unit, scale in (("us", 1.0), ("ms", 1e3)):
        if microseconds < 999.5 * scale:
            return f"{microseconds / scale:.3g} {unit}"
    return f"{microseconds / 1e6:,.3g} s"


def human_count(count: float) -> str:
    """Return a count with a blank and a prefix for the unit that follows: `704 M`, `7 `."""
    value = float(count)
    for prefix in ("", "k", "M", "G", "T", "P"):
        if value < 999.5 or prefix == "P":
            break
        value /= 1000
    return f"{value:.3g} {prefix}"


def human_quantity(value: float, unit: str) -> str:
    """Return a number of a device as people write it: `512 KiB`, `20 us`, `638 TFLOP/s`.

    What has another unit than these is as it is.
    """
    if unit == "B":
        return human_bytes(round(value))
    if unit == "s":
        return human_time(1e6 * value)
    return human_count(value) + unit if unit in {"B/s", "FLOP/s"} else f"{value:,.6g}"


def plural(count: int, noun: str, several: str = "") -> str:
    """Return `1 section`, `2 sections`, `1,234 sections`; `several` is a plural without that s."""
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"


def sentence_lines(text: str, width: int) -> list[str]:
    """Break prose at blanks into lines of at most `width`; joined by blanks it is `text` again."""
    from textwrap import wrap  # whoever runs a PEF prints no prose

    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def grouped(number: int) -> str:
    """Return a number with its digits in groups of three."""
    return f"{number:,}"


def name_text(name: str) -> str:
    """Return `name` as it is where that can be read back, else as a JSON string."""
    if _PLAIN_NAME.fullmatch(name) and name.isprintable():
        return name
    return json.dumps(name, ensure_ascii=not name.isprintable())


def visible(text: str) -> str:
    """Return lines of text for a terminal: what would steer it is shown, not obeyed.

    Names come from files. What cannot be written as UTF-8 is shown too, and JSON stays JSON.
    """
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(c: str) -> str:
    if c < " ":
        return ascii(c)[1:-1]
    return f"\\u{ord(c):04x}" if c <= "\uffff" else json.dumps(c)[1:-1]


def label_text(name: str) -> str:
    """Return `name` as `name_text` does, or `-` if there is none."""
    return name_text(name) if name else "-"


def ranges(numbers: Iterable[int]) -> list[str]:
    """Return ascending runs in short: 3, 5, 6, 7 become `3` and `5..7`."""
    found: list[str] = []
    first = last = None
    for number in numbers:
        if last is not None and number == last + 1:
            last = number
            continue
        if first is not None and last is not None:
            found.append(_run(first, last))
        first = last = number
    if first is not None and last is not None:
        found.append(_run(first, last))
    return found


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}..{last}"


def name_ranges(names: Iterable[str]) -> list[str]:
    """Return names, ascending runs of numbered ones in short: i0, i1, i2 become `i0..i2`."""
    found: list[str] = []
    run: list[tuple[str, int]] = []
    for name in (*names, None):
        numbered = None if name is None else _NUMBERED.fullmatch(name)
        item = (numbered[1], int(numbered[2])) if numbered else None
        if run and item != (run[0][0], run[-1][1] + 1):
            first, last = (f"{stem}{number}" for stem, number in (run[0], run[-1]))
            found.append(first if first == last else f"{first}..{last}")
            run = []
        if item:
            run.append(item)
        elif name is not None:
            found.append(json.dumps(name) if ".." in name else name_text(name))
    return found


@dataclass(frozen=True)
class Table:
    """Cells under headers; columns whose header is in `right` are aligned right.

    `lesser` are headers of columns that a narrow screen can do without, the first to go first.
    `shares` has for some columns how much of a whole each row is, for bars on a screen.
    """

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[str] = ()
    lesser: Sequence[str] = ()
    shares: Mapping[str, Sequence[float]] = field(default_factory=dict)

    def lines(self, width: int = WIDTH) -> list[str]:
        """Return the table as lines, whole however wide that is.

        Rows longer than `width` are wrapped at the blanks of their last cell, under that cell.
        """
        return table(self.headers, self.rows, self.right, width)


def table(
    headers: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: Collection[str] = (),
    width: int = WIDTH,
) -> list[str]:
    """Return the lines of a `Table`."""
    if not rows:
        return ["  (none)"]
    columns = list(zip(*rows, strict=True))
    widths = [
        max(len(header), max(map(len, column)))
        for header, column in zip(headers, columns, strict=True)
    ]
    cells = [
        f"{{:{'>' if header in right else '<'}{width}}}"
        for header, width in zip(headers[:-1], widths, strict=False)
    ]
    indent = sum(widths[:-1]) + 2 * len(widths)
    line = ("  " + "  ".join([*cells, "{}"])).format
    rule = "  " + "  ".join("-" * width for width in [*widths[:-1], len(headers[-1])])
    return [line(*headers), rule, *_lines(line, rows, indent, width)]


def _lines(
    line: Callable[..., str], rows: Sequence[Sequence[str]], indent: int, width: int
) -> Iterator[str]:
    for row in rows:
        text = line(*row)
        if len(text) <= width or " " not in row[-1]:
            yield text
        else:
            parts = wrap(row[-1], max(40, width - indent))
            yield line(*row[:-1], parts[0])
            yield from (" " * indent + part for part in parts[1:])


def wrap(text: str, width: int) -> list[str]:
    """Break `text` at blanks that are in no JSON string into lines of at most `width`."""
    lines: list[str] = []
    current: list[str] = []
    used = 0
    for word in _WORD.findall(text):
        if current and used + 1 + len(word) > width:
            lines.append(" ".join(current))
            current, used = [], 0
        used += len(word) + (1 if current else 0)
        current.append(word)
    lines.append(" ".join(current))
    return lines


def shape_text(shape: Sequence[int | str | None] | None) -> str:
    """Return `1x3x224x224`; `[batch,3,?]` with names or unknown sizes, `[]` for a scalar.

    An unknown rank is `?`.
    """
    if shape is None:
        return "?"
    if shape and all(isinstance(size, int) for size in shape):
        return "x".join(map(str, shape))
    return f"[{','.join(_dim_text(size) for size in shape)}]"


def _dim_text(size: int | str | None) -> str:
    if size is None:
        return "?"
    if isinstance(size, int):
        return str(size)
    if size == "?" or size.isdecimal():
        return json.dumps(size)
    return name_text(size)
