"""What differs between two PEFs, in the words of the report and down to the content of weights."""

from __future__ import annotations

import filecmp
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from .program import DataRef, Program, Section
from .reader import PefFile
from .report import report
from .report_rows import GraphRow, Report, SectionRow, SymbolRow

# Facts by part, item and field: {"symbols": {"conv1.weight": {"bytes": 1024, ...}}}. An item whose
# name is empty is the part itself.
_Facts = dict[str, dict[str, dict[str, object]]]

_PARTS = (
    *("compiler", "model", "options", "device", "signature", "regions", "schedule"),
    *("sections", "symbols", "argins", "warnings"),
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A field of an item that is not the same; an item that only one file has has no field.

    `a` and `b` are plain data; None where that file has nothing.
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
    found = [*_compare(_facts(a.program), _facts(b.program)), *_contents(a, b)]
    found.sort(key=lambda difference: _PARTS.index(difference.part))
    return found or [Difference("file", "", "layout", "one", "another, of the same content")]


def _compare(a: _Facts, b: _Facts) -> Iterator[Difference]:
    for part, items in a.items():
        others = b[part]
        for name, fields in items.items():
            if name not in others:
                yield Difference(part, name, "", "present", None)
            else:
                yield from _fields(part, name, fields, others[name])
        for name in others:
            if name not in items:
                yield Difference(part, name, "", None, "present")


def _fields(
    part: str, name: str, a: Mapping[str, object], b: Mapping[str, object]
) -> Iterator[Difference]:
    for field in dict.fromkeys([*a, *b]):
        left, right = a.get(field), b.get(field)
        if left != right:
            yield Difference(part, name, field, left, right)


def _facts(program: Program) -> _Facts:
    """Return what there is to compare, every reference by name, so that a shift is no change."""
    rows = report(program)
    names = [symbol["name"] for symbol in rows["symbols"]]
    sections = [row["name"] for row in rows["sections"]]
    return {
        "compiler": {"": {"format": rows["format"], **_flat(rows["producer"])}},
        "model": {"": dict(rows["source"])},
        "options": {"": dict(rows["options"])},
        "device": {"": {"arch": rows["arch"], **rows["requires"]}},
        "signature": {row["name"]: _signature(row) for row in rows["graphs"]},
        "regions": {row["name"]: _without(row, "name", "largest") for row in rows["regions"]},
        "schedule": {"": {"calls": [sections[number] for number in rows["schedule"]]}},
        "sections": {
            name: _section(row, section, names)
            for name, row, section in zip(sections, rows["sections"], program.sections, strict=True)
        },
        "symbols": {row["name"]: _symbol(row, rows) for row in rows["symbols"]},
        "argins": {row["name"]: {"default": row["default"]} for row in rows["argins"]},
        "warnings": {"": {"texts": rows["warnings"]}},
    }


def _flat(row: Mapping[str, object]) -> dict[str, object]:
    """Return `row` with the entries of inner dictionaries beside the others."""
    flat: dict[str, object] = {}
    for key, value in row.items():
        flat.update(value if isinstance(value, dict) else {key: value})
    return flat


def _without(row: Mapping[str, object], *keys: str) -> dict[str, object]:
    return {key: value for key, value in row.items() if key not in keys}


def _signature(row: GraphRow) -> dict[str, object]:
    return {
        role: [_without(port, "symbol") for port in ports]
        for role, ports in (("inputs", row["inputs"]), ("outputs", row["outputs"]))
    }


def _section(row: SectionRow, section: Section, names: list[str]) -> dict[str, object]:
    fields = _without(row, "id", "name", "programs", "operators", "groups")
    for role in ("inputs", "weights", "outputs"):
        fields[role] = [names[number] for number in row[role]]
    fields["groups"] = [group["name"] for group in row["groups"]]
    operators = [operator for group in section.groups for operator in group.operators]
    fields["operators"] = [operator.name for operator in operators]
    fields["nodes"] = [operator.node for operator in operators]
    return fields


def _symbol(row: SymbolRow, rows: Report) -> dict[str, object]:
    fields = _without(row, "id", "name", "data") | {"in file": row["data"] is not None}
    if row["last_call"] == rows["totals"]["calls"]:
        fields["last_call"] = "end"
    return fields


def _contents(a: PefFile, b: PefFile) -> Iterator[Difference]:
    """Compare programs and weights byte by byte where both files have them."""
    left, right = dict(_blobs(a.program)), dict(_blobs(b.program))
    for key, ref in left.items():
        other = right.get(key)
        if other is not None and a.bytes(ref) != b.bytes(other):
            yield Difference(*key, "content", _sha256(a, ref), _sha256(b, other))


def _blobs(program: Program) -> Iterator[tuple[tuple[str, str], DataRef]]:
    """Yield part and item of everything that has content in the file, and where it lies."""
    for section in program.sections:
        for variant in section.variants[:1]:
            yield ("sections", section.name), program.programs[variant.program].graph
    for symbol in program.symbols:
        if symbol.data is not None:
            yield ("symbols", symbol.name), symbol.data


def _sha256(file: PefFile, ref: DataRef) -> str:
    return hashlib.sha256(file.view(ref)).hexdigest()
