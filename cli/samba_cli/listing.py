"""`sambarun --list`: what a program takes, gives and consists of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

import pef
from pef.report import ArginRow, PortRow, Report, report
from pef.states import is_training
from pef.text import human_bytes, human_time, name_text, plural, shape_text, table

from .parts import part_rows
from .shell import DONE
from .summaries import modelled, training_lines


def list_program(path: str) -> int:
    """Print the inputs, outputs and sections of the PEF at `path`."""
    with pef.open(path) as file:
        rows = report(file.program)
        parts = [*part_rows(file.program)] if is_training(file.program) else []
    click.echo("\n".join([_title(path, rows), *_body(rows), *_parts(parts)]))
    return DONE


def _title(path: str, rows: Report) -> str:
    totals = rows["totals"]
    source, sections = name_text(rows["source"]["name"]), plural(totals["sections"], "section")
    weights = ""
    if rows["training"] is None:
        weights = f", {human_bytes(totals['weight_bytes'])} of weights"
    name = Path(path).name
    return f"{name}: {source} for {rows['arch']}, {sections}{weights}, modelled at {modelled(rows)}"


def _body(rows: Report) -> list[str]:
    lines = []
    trains = rows["training"] is not None
    if trains:
        lines += ["", "Training", *training_lines(rows)]
    for graph in rows["graphs"]:
        of = f" of '{name_text(graph['name'])}'" if trains or len(rows["graphs"]) > 1 else ""
        lines += ["", f"Inputs{of}", *_ports(graph["inputs"])]
        lines += ["", f"Outputs{of}", *_ports(graph["outputs"])]
    if rows["argins"]:
        lines += ["", "Hyperparameters", *_argins(rows["argins"])]
    parts = [
        (
            str(row["id"]),
            row["type"],
            f"{row['operators']:,}",
            human_bytes(row["bytes_weights"]),
            human_time(row["latency_us"]),
            name_text(row["name"]),
        )
        for row in rows["sections"]
    ]
    headers = ("id", "type", "operators", "weights", "modelled", "name")
    right = ("id", "operators", "weights", "modelled")
    return [*lines, "", "Sections", *table(headers, parts, right)]


def _parts(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return what `--sections` can select of a training step."""
    if not rows:
        return []
    return [
        "",
        "Parts of a step, without --sections all of it",
        *table(("--sections", "needs", "gives"), rows),
    ]


def _argins(argins: list[ArginRow]) -> list[str]:
    rows = [(f"{row['default']:.6g}", name_text(row["name"])) for row in argins]
    return table(("default", "name"), rows, ("default",))


def _ports(ports: list[PortRow]) -> list[str]:
    rows = [
        (
            port["dtype"],
            shape_text(port["shape"]),
            name_text(port["name"]) + (" (may be left out)" if port["optional"] else ""),
        )
        for port in ports
    ]
    return table(("dtype", "shape", "name"), rows)
