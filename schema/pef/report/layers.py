"""Layers in numbers of few bits: rows of the record of a compilation, and the table of them."""

from __future__ import annotations

from collections.abc import Mapping

from pef.text import Table, label_text

from .rows import LayerRow, Report

_TEXTS = ("layer", "operator", "precision", "scale")
_NUMBERS = ("weights", "share")
_MEASURED = ("alone", "in_sequence")
_HEADERS = ("share", "weights", "alone", "in sequence", "type", "precision", "scale", "layer")


def take_layers(options: dict[str, object]) -> list[LayerRow]:
    """Return the rows in the record `options`, and take them out; what is no row stays there."""
    found = options.get("layers")
    if not isinstance(found, list) or not found:
        return []
    rows = [row for row in found if isinstance(row, dict) and _is_row(row)]
    if len(rows) != len(found):
        return []
    del options["layers"]
    return [
        LayerRow(
            layer=row["layer"],
            operator=row["operator"],
            precision=row["precision"],
            scale=row["scale"],
            weights=row["weights"],
            share=row["share"],
            alone=row.get("alone"),
            in_sequence=row.get("in_sequence"),
        )
        for row in rows
    ]


def layer_table(report: Report) -> Table:
    """Return the table of layers."""
    rows = [
        (
            *map(_number, (row["share"], row["weights"], row["alone"], row["in_sequence"])),
            *map(label_text, (row["operator"], row["precision"], row["scale"], row["layer"])),
        )
        for row in report["layers"]
    ]
    return Table(_HEADERS, rows, _HEADERS[:4], ("alone", "in sequence", "weights", "type"))


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _is_row(row: Mapping[str, object]) -> bool:
    texts = all(isinstance(row.get(name), str) for name in _TEXTS)
    numbers = all(isinstance(row.get(name), int | float) for name in _NUMBERS)
    measured = all(isinstance(row.get(name), int | float | None) for name in _MEASURED)
    return texts and numbers and measured
