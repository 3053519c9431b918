"""`sambarun --list`: what a program takes, gives and consists of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pef
from pef.report import ArginRow, PortRow, Report, report
from pef.states import is_training
from pef.text import human_bytes, human_time, name_text, plural, shape_text, table

from .parts import part_rows
from .shell import DONE, echo
from .summaries import modelled, training_lines


def list_program(path: str, provider: str | None) -> int:
    """Print the inputs, outputs and sections of the PEF at `path`.

    With `provider`, what --provider says, the table of sections tells which provider runs each.
    """
    with pef.open(path) as file:
        rows = report(file.program)
        parts = [*part_rows(file.program)] if is_training(file.program) else []
    run_by = {} if provider is None else _providers(path, provider)
    echo("\n".join([_title(path, rows), *_body(rows, run_by), *_parts(parts)]))
    return DONE


def _providers(path: str, provider: str) -> dict[int, str]:
    """Return the execution provider of each section, once all of them are opened."""
    import sambarun  # most lists say nothing of providers, and onnxruntime takes long to load

    from .running import provider_of

    return sambarun.load(path, own_process=True, provider=provider_of(provider)).providers()


def _title(path: str, rows: Report) -> str:
    totals = rows["totals"]
    source, sections = name_text(rows["source"]["name"]), plural(totals["sections"], "section")
    weights = ""
    if rows["training"] is None:
        weights = f", {human_bytes(totals['weight_bytes'])} of weights"
        if absent := sum(row["bytes"] for row in rows["absent"]):
            weights += f" and {human_bytes(absent)} of absent ones"
    name = Path(path).name
    return f"{name}: {source} for {rows['arch']}, {sections}{weights}, modelled at {modelled(rows)}"


def _body(rows: Report, run_by: Mapping[int, str]) -> list[str]:
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
    # Those that change, or are absent, are inputs of sections.
    kinds = ("WEIGHT", "BUFFER")
    lasting = {row["id"]: row["bytes"] for row in rows["symbols"] if row["kind"] in kinds}
    parts = [
        (
            str(row["id"]),
            row["type"],
            f"{row['operators']:,}",
            human_bytes(row["bytes_weights"] + sum(lasting.get(at, 0) for at in row["inputs"])),
            human_time(row["latency_us"]),
            *((run_by.get(row["id"], ""),) if run_by else ()),
            name_text(row["name"]),
        )
        for row in rows["sections"]
    ]
    provider = ("provider",) if run_by else ()
    headers = ("id", "type", "operators", "weights read", "modelled", *provider, "name")
    right = ("id", "operators", "weights read", "modelled")
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
