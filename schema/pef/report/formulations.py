"""Formulations of operators: rows of the record of a compilation, and the table of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from pef.text import Table, label_text

from .rows import FormulationRow, Report

_TEXTS = ("operator", "sizes", "dtype", "formulation", "by")
_HEADERS = ("by", "operator", "formulation", "dtype", "sizes", "of")


def take_formulations(options: dict[str, object]) -> list[FormulationRow]:
    """Return the rows in the record `options`, and take them out; what is no row stays there."""
    found = options.get("formulations")
    if not isinstance(found, list) or not found:
        return []
    rows = [row for row in found if isinstance(row, dict) and _is_row(row)]
    if len(rows) != len(found):
        return []
    del options["formulations"]
    return [
        FormulationRow(
            operator=row["operator"],
            sizes=row["sizes"],
            dtype=row["dtype"],
            formulation=row["formulation"],
            by=row["by"],
            of=list(row["of"]),
        )
        for row in rows
    ]


def formulation_parts(report: Report) -> Iterator[tuple[str, Table]]:
    """Yield the table of formulations under its title, if there are any."""
    if not report["formulations"]:
        return
    rows = [
        (
            *map(
                _words, (row["by"], row["operator"], row["formulation"], row["dtype"], row["sizes"])
            ),
            " ".join(map(label_text, row["of"])) or "-",
        )
        for row in report["formulations"]
    ]
    title = f"Formulations ({len(rows):,}; by a guess of costs, or measured)"
    yield title, Table(_HEADERS, rows, (), ("of", "dtype"))


def _words(text: str) -> str:
    """Return words with single blanks between them as they are, else a JSON string."""
    plain = text.isprintable() and text[:1] != '"' and text == " ".join(text.split())
    return text if plain and text not in ("", "-") else json.dumps(text)


def _is_row(row: Mapping[str, object]) -> bool:
    texts = all(isinstance(row.get(name), str) for name in _TEXTS)
    of = row.get("of")
    return texts and isinstance(of, list) and all(isinstance(name, str) for name in of)
