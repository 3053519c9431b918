"""`sambarun --list`: what a program takes, gives and consists of."""

from __future__ import annotations

from pathlib import Path

import click

import pef
from pef.report import report
from pef.report_rows import PortRow
from pef.text import human_bytes, human_time, name_text, plural, shape_text, table

from .shell import DONE


def list_program(path: str) -> int:
    """Print the inputs, outputs and sections of the PEF at `path`."""
    with pef.open(path) as file:
        rows = report(file.program)
    totals = rows["totals"]
    source, sections = name_text(rows["source"]["name"]), plural(totals["sections"], "section")
    weights, latency = human_bytes(totals["weight_bytes"]), human_time(totals["latency_us"])
    lines = [f"{Path(path).name}: {source} for {rows['arch']}, {sections}, {weights} of weights"]
    lines[0] += f", modelled at {latency} a run"
    for graph in rows["graphs"]:
        lines += ["", "Inputs", *_ports(graph["inputs"])]
        lines += ["", "Outputs", *_ports(graph["outputs"])]
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
    lines += ["", "Sections", *table(headers, parts, right)]
    click.echo("\n".join(lines))
    return DONE


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
