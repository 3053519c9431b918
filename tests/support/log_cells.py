"""The cells of tables in logs, read without the code that writes them."""

from __future__ import annotations

import json
import re

Table = list[dict[str, str]]

_CELL = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\S)+(?: (?:"(?:[^"\\]|\\.)*"|\S)+)*')
WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')


def table(lines: list[str]) -> Table:
    """Return the rows of a table by its headers."""
    if not lines or lines == ["  (none)"]:
        return []
    headers = _CELL.findall(lines[0])
    start = len(lines[0]) - len(headers[-1])
    assert set(lines[1]) == {" ", "-"}
    rows: list[list[str]] = []
    for line in lines[2:]:
        if not line[:start].strip():
            rows[-1][-1] += " " + line.strip()
        else:
            rows.append(_CELL.findall(line))
    return [dict(zip(headers, row, strict=True)) for row in rows]


def unquoted(cell: str) -> str:
    """Return a name, which may be a JSON string."""
    return str(json.loads(cell)) if cell.startswith('"') else cell


def number(cell: str) -> int:
    """Return a number with its groups of digits."""
    return int(cell.replace(",", ""))


def exact(cell: str) -> int:
    """Return the bytes before their size in units."""
    return number(cell.split(" ")[0])


def pairs(cell: str) -> dict[str, str]:
    """Return `name=value` pairs."""
    pairs = re.findall(r'("(?:[^"\\]|\\.)*"|[^\s"=]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)', cell)
    return {unquoted(left): unquoted(right) for left, right in pairs}


def ranges(words: list[str]) -> list[int]:
    """Return the numbers of runs such as `3..5`."""
    found: list[int] = []
    for word in words:
        if word != "(none)":
            first, _, last = word.partition("..")
            found += range(int(first), int(last or first) + 1)
    return found


def formal(cell: str) -> list[str]:
    """Return the names of runs such as `i0..i5`."""
    found: list[str] = []
    for word in WORD.findall(cell):
        run = re.fullmatch(r"([A-Za-z_]+)(\d+)\.\.[A-Za-z_]+(\d+)", word)
        if run:
            found += [f"{run[1]}{number}" for number in range(int(run[2]), int(run[3]) + 1)]
        else:
            found.append(unquoted(word))
    return found


def shape(cell: str) -> list[int | str | None] | None:
    """Return a shape."""
    if cell == "?":
        return None
    if not cell.startswith("["):
        return [int(size) for size in cell.split("x")]
    dims = re.findall(r'"(?:[^"\\]|\\.)*"|[^,]+', cell[1:-1])
    return [dim(each) for each in dims]


def dim(text: str) -> int | str | None:
    """Return one dimension."""
    if text == "?":
        return None
    return int(text) if text.isdecimal() else unquoted(text)


def label(cell: str) -> str:
    """Return a name, empty if there is none."""
    return "" if cell == "-" else unquoted(cell)


def index(cell: str) -> int | None:
    """Return an index, or None."""
    return None if cell == "-" else int(cell)


def layer(row: dict[str, str]) -> dict[str, object]:
    """Return a row of the table of layers."""
    measured = {"time": row["time"], "alone": row["alone"], "in_sequence": row["in sequence"]}
    return {
        "layer": label(row["layer"]),
        "operator": label(row["type"]),
        "precision": label(row["precision"]),
        "scale": label(row["scale"]),
        "weights": float(row["weights"]),
        "share": float(row["share"]),
        **{name: None if text == "-" else float(text) for name, text in measured.items()},
    }


def formulation(row: dict[str, str]) -> dict[str, object]:
    """Return a row of the table of formulations."""
    texts = ("operator", "sizes", "dtype", "formulation", "by")
    names = [] if row["of"] == "-" else WORD.findall(row["of"])
    return {**{name: unquoted(row[name]) for name in texts}, "of": list(map(label, names))}


def narrowed(nbytes: int, declared: str, dtype: str) -> int:
    """Return what `nbytes` of `dtype` are in the type that is declared, if one is."""
    return nbytes * _bits(declared) // _bits(dtype) if declared else nbytes


def _bits(dtype: str) -> int:
    return int(re.findall(r"\d+", dtype)[0])
