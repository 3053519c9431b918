"""The parts of a report's text that only programs with states have."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pef.text import Table, name_text

from .rows import Report, Training


def training_lines(training: Training) -> Table:
    """Return the graphs that train, and what starts their backward passes."""
    rows = [
        (what, " ".join(map(name_text, names)) or "-")
        for what, names in (("steps", training["steps"]), ("losses", training["losses"]))
    ]
    return Table(("what", "value"), rows)


def absent_lines(report: Report) -> Table:
    """Return what has no content in the file."""
    headers = ("symbol", "bytes", "name")
    rows = [
        (str(row["symbol"]), f"{row['bytes']:,}", name_text(row["name"]))
        for row in report["absent"]
    ]
    return Table(headers, rows, headers[:2])


def memory_lines(training: Training) -> Table:
    """Return what each kind of tensor takes."""
    rows = [
        (f"{row['tensors']:,}", f"{row['elements']:,}", f"{row['bytes']:,}", row["kind"])
        for row in training["memory"]
    ]
    headers = ("tensors", "elements", "bytes", "kind")
    return Table(headers, rows, headers[:3])


def argin_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the scalars that a run can set, and what they choose."""
    if report["argins"]:
        yield f"Argins ({len(report['argins'])})", _argin_lines(report)
    rows = [
        (str(section["id"]), str(program), _names(zeros), _names(nonzeros))
        for section in report["sections"]
        for program, zeros, nonzeros in zip(
            section["programs"], section["zeros"], section["nonzeros"], strict=True
        )
        if zeros or nonzeros
    ]
    if rows:
        headers = ("section", "program", "zero", "not zero")
        yield "Programs that run while argins are zero, or not", Table(headers, rows, headers[:2])


def _names(names: Iterable[str]) -> str:
    return " ".join(map(name_text, names)) or "-"


def _argin_lines(report: Report) -> Table:
    rows = [
        (
            str(row["symbol"]),
            repr(row["default"]),
            *(name_text(row[said]) if row[said] else "-" for said in ("option", "group")),
            name_text(row["name"]),
        )
        for row in report["argins"]
    ]
    return Table(("symbol", "default", "option", "group", "name"), rows, ("symbol", "default"))


def host_kernel_lines(report: Report) -> Table:
    """Return the steps that the host makes before sections."""
    rows = [
        (
            str(row["section"]),
            name_text(row["kind"]),
            " ".join(map(str, row["inputs"])) or "-",
            " ".join(map(str, row["outputs"])) or "-",
            json.dumps(
                row["parameters"], ensure_ascii=False, separators=(",", ":"), sort_keys=True
            ),
        )
        for row in report["host_kernels"]
    ]
    return Table(("section", "kind", "reads", "writes", "parameters"), rows, ("section",))


def alias_lines(report: Report) -> Table:
    """Return the further names of symbols."""
    rows = [
        (str(row["symbol"]), name_text(row["name"]), row["api"] or "-") for row in report["aliases"]
    ]
    return Table(("symbol", "name", "api"), rows, ("symbol",))
