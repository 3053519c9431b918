"""What differs between two PEFs: every field of the format, down to the content of weights.

What is compared is derived from the dataclasses of `pef.program` and the marks of their fields, so
that a new field cannot be forgotten. Every reference counts as the name of what it refers to, or as
what that holds where it has no name, so that a row that moved is no change.
"""

from __future__ import annotations

import filecmp
import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from functools import cache
from typing import get_args, get_type_hints

from pef.container import DataRef, Segment
from pef.foreign import json_object
from pef.marks import JsonObject, Nameless, RowOf, SchedulePosition
from pef.program import Program
from pef.reader import PefFile

# The fields of a value by path ("estimate.latency"); a value that has none is the field "".
_Leaves = dict[str, object]
# Items by part and name: {"symbols": {"conv1.weight": {"size": 1024, ...}}}. An item whose name is
# empty is the part itself.
Facts = dict[str, dict[str, _Leaves]]


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of an item that is not the same; an item that only one file has has no field.

    `part` is a field of `pef.Program`, or `file`. `a` and `b` are plain data; None where that file
    has nothing.
    """

    part: str
    item: str
    field: str
    a: object
    b: object


def differences(a: PefFile, b: PefFile) -> list[Difference]:
    """Return all that differs between two open files; equal files give an empty list.

    Raises `PefError` when content that has to be compared is damaged.
    """
    if filecmp.cmp(a.path, b.path, shallow=False):
        return []
    found = list(compare(_of_file(a), _of_file(b)))
    return found or [Difference("file", "", "encoding", "one", "another, of the same program")]


def compare(a: Facts, b: Facts) -> Iterator[Difference]:
    """Yield what differs, in the order of the fields of `pef.Program`."""
    for part, items in a.items():
        others = b[part]
        for name, leaves in items.items():
            if name in others:
                yield from _fields(part, name, leaves, others[name])
            else:
                yield Difference(part, name, "", "present", None)
        yield from (Difference(part, x, "", None, "present") for x in others if x not in items)
        if part == "graphs":  # the first one is what runs unless another is named
            orders = [
                [name for name in one if name in items.keys() & others] for one in (items, others)
            ]
            if orders[0] != orders[1]:
                yield Difference(part, "", "order", *orders)


def _fields(part: str, name: str, a: _Leaves, b: _Leaves) -> Iterator[Difference]:
    for field in dict.fromkeys([*a, *b]):
        left, right = a.get(field), b.get(field)
        if left != right:
            yield Difference(part, name, field or part, left, right)


def _of_file(file: PefFile) -> Facts:
    version: Facts = {"file": {"": {"format": ".".join(map(str, file.header.version))}}}
    return version | facts(file.program, file.bytes)


def facts(program: Program, content: Callable[[DataRef], bytes | memoryview]) -> Facts:
    """Return all fields of `program` by part and item; `content` reads the bytes of a reference.

    Rows of tables without names are told where they are referred to; those that nothing refers to
    have items of their own, called by their position.
    """
    told = _Told(program, content)
    kinds = _kinds(Program)
    named = {name: told.part(name, kind) for name, kind in kinds.items() if name not in _nameless()}
    return {name: named[name] if name in named else told.unused(name) for name in kinds}


class _Told:
    """Tells values of one program as plain data, and keeps which rows without names it has told."""

    def __init__(self, program: Program, content: Callable[[DataRef], bytes | memoryview]) -> None:
        self._program = program
        self._content = content
        self._names: dict[str, list[str]] = {}
        self._used: dict[str, set[int]] = {table: set() for table in _nameless()}

    def part(self, name: str, kind: _Kind) -> dict[str, _Leaves]:
        """Return the items of a field of the program: its rows by name, else the field itself."""
        value = getattr(self._program, name)
        if not isinstance(value, tuple) or not kind.rows:
            return {"": self._leaves(value, kind)}
        rows = [self._leaves(row, kind) for row in value]
        if name == "segments":
            rows = [row | held for row, held in zip(rows, _layout(self._program), strict=True)]
        return dict(zip(_names(value), rows, strict=True))

    def unused(self, table: str) -> dict[str, _Leaves]:
        """Return the rows of a table without names that nothing refers to, by position."""
        kind = _kinds(Program)[table]
        rows = enumerate(getattr(self._program, table))
        return {str(i): self._leaves(row, kind) for i, row in rows if i not in self._used[table]}

    def _leaves(self, value: object, kind: _Kind) -> _Leaves:
        """Return the fields of `value` by path; those of a sequence of rows as lists."""
        mark = kind.mark
        if isinstance(value, DataRef):
            data = hashlib.sha256(self._content(value)).hexdigest()
            return {"segment": self._name("segments", value.segment), "content": data}
        if is_dataclass(value) and not isinstance(value, type):
            inner = _kinds(type(value))
            return _joined((n, self._leaves(getattr(value, n), k)) for n, k in inner.items())
        if isinstance(value, tuple) and kind.rows:
            return _columns([self._leaves(row, kind) for row in value])
        if isinstance(mark, RowOf) and mark.table in _nameless() and isinstance(value, int):
            self._used[mark.table].add(value)
            return self._leaves(getattr(self._program, mark.table)[value], kind)
        if isinstance(mark, JsonObject) and isinstance(value, str):
            return _json_leaves(json_object(value, "what should be JSON objects"))
        return {"": self._plain(value, mark)}

    def _plain(self, value: object, mark: object) -> object:
        if isinstance(value, tuple):
            return [self._plain(item, mark) for item in value]
        if isinstance(value, IntEnum):
            return value.name
        if isinstance(mark, SchedulePosition) and value == len(self._program.schedule):
            return "end"
        if isinstance(mark, RowOf) and isinstance(value, int):
            return self._name(mark.table, value)
        return value

    def _name(self, table: str, index: int) -> str:
        if table not in self._names:
            self._names[table] = _names(getattr(self._program, table))
        return self._names[table][index]


@dataclass(frozen=True, slots=True)
class _Kind:
    """What the type of a field says: its mark, and whether it holds rows with fields."""

    mark: object
    rows: bool


@cache
def _kinds(row: type) -> dict[str, _Kind]:
    """Return the kind of each field of a dataclass; pieces of segments are read by reference."""
    hints = get_type_hints(row, include_extras=True)
    found = {field.name: list(_parts(hints[field.name])) for field in fields(row)}
    return {
        name: _Kind(
            mark=next((part for part in parts if isinstance(part, _MARKS)), None),
            rows=any(isinstance(part, type) and is_dataclass(part) for part in parts),
        )
        for name, parts in found.items()
        if row is not Segment or name != "pieces"
    }


def _parts(hint: object) -> Iterator[object]:
    """Yield the types and marks that an annotation is made of."""
    yield hint
    for part in get_args(hint):
        yield from _parts(part)


_MARKS = (JsonObject, SchedulePosition, Nameless, RowOf)


@cache
def _nameless() -> frozenset[str]:
    """Return the tables whose rows have no names."""
    kinds = _kinds(Program).items()
    return frozenset(name for name, kind in kinds if isinstance(kind.mark, Nameless))


def _layout(program: Program) -> Iterator[_Leaves]:
    """Yield for each segment what lies in it, in order, and where."""
    stored = sorted(_stored(program), key=lambda item: (item[0].segment, item[0].offset))
    for number in range(len(program.segments)):
        inside = [(ref.offset, name) for ref, name in stored if ref.segment == number]
        yield {"holds": [name for _, name in inside], "offsets": [at for at, _ in inside]}


def _stored(program: Program) -> Iterator[tuple[DataRef, str]]:
    """Yield what lies in segments, and its name: a symbol, or a program by a section's name."""
    for symbol in program.symbols:
        if symbol.data is not None:
            yield symbol.data, symbol.name
    users: dict[int, str] = {}
    for section in program.sections:
        for number, variant in enumerate(section.variants):
            users.setdefault(variant.program, f"program {number} of {section.name}")
    for index, row in enumerate(program.programs):
        yield row.graph, users.get(index, f"program {index}")


def _names(rows: Iterable[object]) -> list[str]:
    """Return a name for each row, its own or its kind's; those that come again get a number."""
    found, seen = [], Counter[str]()
    for row in rows:
        kind = getattr(row, "kind", "")
        name = getattr(row, "name", "") or (kind.name if isinstance(kind, IntEnum) else kind)
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return found


def _json_leaves(value: object) -> _Leaves:
    if isinstance(value, dict):
        return _joined((key, _json_leaves(inner)) for key, inner in value.items())
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return _columns([_json_leaves(row) for row in value])
    return {"": value}


def _columns(rows: list[_Leaves]) -> _Leaves:
    """Return the rows of a sequence field by field: {"name": ["a", "b"], ...}."""
    paths = dict.fromkeys(path for row in rows for path in row)
    return {path: [row.get(path) for row in rows] for path in paths}


def _joined(parts: Iterable[tuple[str, Mapping[str, object]]]) -> _Leaves:
    return {
        f"{name}.{path}" if path else name: leaf
        for name, leaves in parts
        for path, leaf in leaves.items()
    }
