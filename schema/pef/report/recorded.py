"""What a compilation recorded row by row: rows of its record, and the tables of them.

Formulations: how operators that can be written in several ways are written. Layers: those that
compute in numbers of few bits, or could.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from pef.text import Table, label_text

from .rows import FormulationRow, LayerRow, Report

T = TypeVar("T")
Stored = Mapping[str, Any]

_CHOICES = ("by", "operator", "formulation", "dtype", "sizes")
_LAYER_TEXTS = ("layer", "operator", "precision", "scale")
_LAYER_NUMBERS = ("weights", "share")
_OPTIONAL = ("time", "alone", "in_sequence")
_LAYERS = (
    *("share", "time", "weights", "alone", "in sequence"),
    *("type", "precision", "scale", "layer"),
)


def take_formulations(options: dict[str, object]) -> list[FormulationRow]:
    """Return the rows in the record `options`, and take them out; what is no row stays there."""
    return _taken(options, "formulations", _is_formulation, _formulation)


def take_layers(options: dict[str, object]) -> list[LayerRow]:
    """Return the layers in the record `options`, as `take_formulations` does."""
    return _taken(options, "layers", _is_layer, _layer)


def _taken(
    options: dict[str, object],
    name: str,
    is_row: Callable[[Stored], bool],
    made: Callable[[Stored], T],
) -> list[T]:
    found = options.get(name)
    if not isinstance(found, list) or not found:
        return []
    if not all(isinstance(row, dict) and is_row(row) for row in found):
        return []
    del options[name]
    return [made(row) for row in found]


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
    yield title, Table((*_CHOICES, "of"), rows, (), ("of", "dtype"))


def layer_table(report: Report) -> Table:
    """Return the table of layers."""
    rows = [
        (
            *map(
                _number,
                [row[name] for name in ("share", "time", "weights", "alone", "in_sequence")],
            ),
            *map(label_text, (row["operator"], row["precision"], row["scale"], row["layer"])),
        )
        for row in report["layers"]
    ]
    return Table(_LAYERS, rows, _LAYERS[:5], ("alone", "in sequence", "weights", "type"))


def _words(text: str) -> str:
    """Return words with single blanks between them as they are, else a JSON string."""
    plain = text.isprintable() and text[:1] != '"' and text == " ".join(text.split())
    return text if plain and text not in ("", "-") else json.dumps(text)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _is_formulation(row: Stored) -> bool:
    texts = all(isinstance(row.get(name), str) for name in _CHOICES)
    of = row.get("of")
    return texts and isinstance(of, list) and all(isinstance(name, str) for name in of)


def _formulation(row: Stored) -> FormulationRow:
    return FormulationRow(
        operator=row["operator"],
        sizes=row["sizes"],
        dtype=row["dtype"],
        formulation=row["formulation"],
        by=row["by"],
        of=list(row["of"]),
    )


def _is_layer(row: Stored) -> bool:
    texts = all(isinstance(row.get(name), str) for name in _LAYER_TEXTS)
    numbers = all(isinstance(row.get(name), int | float) for name in _LAYER_NUMBERS)
    measured = all(isinstance(row.get(name), int | float | None) for name in _OPTIONAL)
    return texts and numbers and measured


def _layer(row: Stored) -> LayerRow:
    return LayerRow(
        layer=row["layer"],
        operator=row["operator"],
        precision=row["precision"],
        scale=row["scale"],
        weights=row["weights"],
        share=row["share"],
        time=row.get("time"),
        alone=row.get("alone"),
        in_sequence=row.get("in_sequence"),
    )
