"""A report as text: the log beside a PEF, and what `sambac inspect` prints.

The text holds all that the report holds, in tables that can be read back exactly, with the
summary first and the long lists last. Nothing in it depends on the time, the host or the folder.
Everything modelled says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from pef.text import (
    WIDTH,
    Table,
    grouped,
    human_bytes,
    label_text,
    name_text,
    plural,
    ranges,
    sentence_lines,
    shape_text,
    wrap,
)

from .recorded import formulation_parts, layer_table
from .rendering_storage import memory_parts, storage_parts
from .rendering_summary import cost_parts, device_parts, summary, time_parts
from .rendering_training import (
    absent_lines,
    alias_lines,
    argin_parts,
    host_kernel_lines,
    memory_lines,
    training_lines,
)
from .rows import GroupRow, OperatorRow, PortRow, Report, SectionRow, UpdateRow

Part = tuple[str, "Table | Sequence[str]"]
"""The title and the body of a part: a table, or lines of text."""
_SECTION_HEADERS = (
    *("id", "type", "groups", "ops", "PCUs", "PMUs", "SRAM", "in", "out", "fixed weights"),
    *("us", "limit", "name"),
)
_LESSER = (
    *("SRAM", "fixed weights", "in", "out", "groups", "ops", "type", "limit", "PMUs", "PCUs"),
)
_GRAPH_HEADERS = (
    *("first call", "calls", "us", "policy us", "FLOP", "in", "out", "fixed weights"),
    "role",
    "model",
    "graph",
)


def render(report: Report) -> Iterator[str]:
    """Yield the lines of the text."""
    yield from sentence_lines(summary(report), WIDTH)
    yield ""
    yield from render_parts(parts(report))


def render_parts(chosen: Iterable[Part]) -> Iterator[str]:
    """Yield the lines of these parts."""
    for number, (title, body) in enumerate(chosen):
        if number:
            yield ""
        yield title
        yield from body.lines() if isinstance(body, Table) else body


def parts(report: Report) -> Iterator[Part]:
    """Yield the parts behind the summary, in reading order: the title of each, and its body."""
    totals = report["totals"]
    if report["warnings"]:
        yield f"Warnings ({len(report['warnings'])})", _warnings(report)
    yield "Compilation", _compilation(report)
    if report["training"]:
        yield "Training", training_lines(report["training"])
        yield (
            "Training memory (bytes; what shares an address counts each time)",
            memory_lines(report["training"]),
        )
    if report["absent"]:
        yield f"Absent weights ({len(report['absent']):,})", absent_lines(report)
    if report["layers"]:
        what = "shares of arithmetic and time, relative errors"
        yield f"Layers ({len(report['layers']):,}; {what})", layer_table(report)
    yield from formulation_parts(report)
    yield f"Graphs ({len(report['graphs'])}; time is modelled)", _graphs(report)
    for graph in report["graphs"]:
        title = f"graph {name_text(graph['name'])}, {plural(graph['calls'], 'call')}"
        title += f" from call {graph['first_call']}"
        yield f"Inputs of {title}", _ports(graph["inputs"])
        yield f"Outputs of {title}", _ports(graph["outputs"])
    yield from memory_parts(report)
    yield f"Operators ({totals['operators']:,})", _op_types(report)
    yield (
        f"Sections ({totals['sections']:,}; bytes in, out, of fixed weights; latency is modelled)",
        _sections(report),
    )
    yield from cost_parts(report)
    yield f"Schedule ({plural(totals['calls'], 'call')})", _schedule(report)
    yield from argin_parts(report)
    if report["host_kernels"]:
        count = len(report["host_kernels"])
        yield f"Host kernels ({count}; symbols read and written)", host_kernel_lines(report)
    if report["aliases"]:
        yield f"Aliases ({len(report['aliases'])})", alias_lines(report)
    yield (
        f"Fusion groups ({totals['groups']:,}; an operator without a name bears its group's)",
        _groups(report),
    )
    yield "Data flow (which program each section runs, on which symbols)", _flow(report)
    yield from storage_parts(report)
    yield from device_parts(report)
    if report["more"]:
        yield f"More ({len(report['more']):,})", _more(report)


def section_parts(report: Report, *, inside: bool) -> Iterator[Part]:
    """Yield the parts that tell of sections alone, for a report that has only some of them.

    With `inside` those are told too that say what sections consist of.
    """
    yield f"Sections ({len(report['sections']):,}; modelled)", _sections(report)
    if not inside:
        yield from time_parts(report)
        return
    yield from cost_parts(report)
    groups = sum(len(section["groups"]) for section in report["sections"])
    yield f"Fusion groups ({groups:,})", _groups(report)
    yield "Data flow (which program each section runs, on which symbols)", _flow(report)


def _warnings(report: Report) -> list[str]:
    lines: list[str] = []
    for warning in report["warnings"]:
        first, *rest = sentence_lines(warning, WIDTH - 4)
        lines += [f"  - {first}", *(f"    {line}" for line in rest)]
    return lines


def _compilation(report: Report) -> Table:
    file, source, producer = report["file"], report["source"], report["producer"]
    options = sorted(report["options"].items())
    rows = [
        ("file", f"{name_text(file['name'])}" if file else "-"),
        ("file bytes", _exact(file["bytes"]) if file else "-"),
        ("format", report["format"]),
        ("model", name_text(source["name"])),
        ("sha256", source["sha256"] or "-"),
        ("arch", name_text(report["arch"])),
        ("producer", f"{producer['tool']} {producer['version']}"),
        ("libraries", _pairs(producer["libraries"].items())),
        ("options", " ".join(f"{name}={_value(value)}" for name, value in options) or "-"),
        ("opsets", _pairs((domain, str(v)) for domain, v in report["requires"]["opsets"].items())),
        ("features", " ".join(map(name_text, report["requires"]["features"])) or "-"),
        ("programs", f"{report['totals']['programs']} {_exact(report['totals']['program_bytes'])}"),
    ]
    return Table(("what", "value"), rows)


def _graphs(report: Report) -> Table:
    rows = [
        (
            str(row["first_call"]),
            grouped(row["calls"]),
            f"{row['latency_us']:,.3f}",
            "-" if row["policy_us"] is None else f"{row['policy_us']:,.3f}",
            grouped(row["flops"]),
            grouped(row["bytes_in"]),
            grouped(row["bytes_out"]),
            grouped(row["bytes_weights"]),
            row["role"].lower(),
            label_text(row["model"]),
            name_text(row["name"]),
        )
        for row in report["graphs"]
    ]
    lesser = (
        "first call",
        "policy us",
        "FLOP",
        "model",
        "role",
        "fixed weights",
        "out",
        "in",
        "calls",
    )
    return Table(_GRAPH_HEADERS, rows, _GRAPH_HEADERS[:8], lesser)


def _ports(ports: Sequence[PortRow]) -> Table:
    rows = [
        (
            str(port["symbol"]),
            name_text(port["dtype"]),
            grouped(port["bytes"]),
            "yes" if port["optional"] else "no",
            "-" if port["gradient"] is None else str(port["gradient"]),
            shape_text(port["shape"]),
            name_text(port["name"]),
        )
        for port in ports
    ]
    return Table(
        ("symbol", "dtype", "bytes", "default", "gradient", "shape", "name"),
        rows,
        ("symbol", "bytes", "gradient"),
        ("gradient",),
    )


def _updates(updates: Sequence[UpdateRow]) -> list[str]:
    """Return what is updated: `3` under its own name, `3>4` what becomes another symbol."""
    if all(row["old"] == row["new"] for row in updates):
        return ranges(row["new"] for row in updates)
    return [f"{row['old']}>{row['new']}" for row in updates]


def _more(report: Report) -> Table:
    rows = [
        (name_text(row["of"] or "program"), row["field"], _value(row["value"]))
        for row in report["more"]
    ]
    return Table(("of", "field", "value"), rows)


def _op_types(report: Report) -> list[str]:
    items = (f"{row['op_type']}={row['count']}" for row in report["op_types"])
    return ["  " + line for line in wrap(" ".join(items) or "(none)", WIDTH - 2)]


def _sections(report: Report) -> Table:
    rows = [_section(row) for row in report["sections"]]
    right = (*_SECTION_HEADERS[:1], *_SECTION_HEADERS[2:11])
    return Table(_SECTION_HEADERS, rows, right, _LESSER, _section_shares(report))


def _section_shares(report: Report) -> dict[str, list[float]]:
    """Return the time of each section beside the slowest, its units beside those of the chip."""
    sections, device = report["sections"], {row["name"]: row["value"] for row in report["device"]}
    slowest = max((row["latency_us"] for row in sections), default=0.0)
    wholes = {
        "us": ([row["latency_us"] for row in sections], slowest),
        "PCUs": ([float(row["pcus"]) for row in sections], device.get("pcus")),
        "PMUs": ([float(row["pmus"]) for row in sections], device.get("pmus")),
    }
    return {name: [part / all_ for part in parts] for name, (parts, all_) in wholes.items() if all_}


def _section(row: SectionRow) -> tuple[str, ...]:
    return (
        str(row["id"]),
        row["type"],
        str(len(row["groups"])),
        str(row["operators"]),
        grouped(row["pcus"]),
        grouped(row["pmus"]),
        grouped(row["sram"]),
        grouped(row["bytes_in"]),
        grouped(row["bytes_out"]),
        grouped(row["bytes_weights"]),
        f"{row['latency_us']:,.3f}",
        name_text(row["limited_by"]),
        name_text(row["name"]),
    )


def _schedule(report: Report) -> list[str]:
    items = " ".join(ranges(report["schedule"])) or "(none)"
    return ["  sections in order of their calls:", *("  " + x for x in wrap(items, WIDTH - 2))]


def _groups(report: Report) -> Table:
    rows = [
        (str(section["id"]), name_text(group["name"]), _nodes(group), _operators(group))
        for section in report["sections"]
        for group in section["groups"]
    ]
    return Table(("section", "group", "nodes", "operators"), rows, ("section",), ("nodes",))


def _nodes(group: GroupRow) -> str:
    """Return where the operators stand in the section's program, in their order."""
    return ",".join(ranges(op["node"] for op in group["operators"])) or "-"


def _operators(group: GroupRow) -> str:
    return " ".join(
        _typed(op) if op["name"] == group["name"] else f"{_typed(op)}({name_text(op['name'])})"
        for op in group["operators"]
    )


def _typed(op: OperatorRow) -> str:
    """Return the kind of an operator, and the types of its results where the host has others."""
    return f"{op['op_type']}:{','.join(op['declared'])}" if op["declared"] else op["op_type"]


def _flow(report: Report) -> Table:
    rows = [
        (
            str(row["id"]),
            ",".join(map(str, row["programs"])) or "-",
            grouped(row["flops"]),
            _section_flow(row),
        )
        for row in report["sections"]
    ]
    headers = ("section", "program", "FLOP", "inputs + fixed weights -> outputs")
    return Table(headers, rows, ("section", "FLOP"))


def _section_flow(row: SectionRow) -> str:
    parts = [*ranges(row["inputs"])]
    if row["weights"]:
        parts += ["+", *ranges(row["weights"])]
    parts += ["->", *ranges(row["outputs"])]
    if row["in_place"]:
        parts += ["in place", *_updates(row["in_place"])]
    return " ".join(parts)


def _exact(count: int) -> str:
    return f"{count:,} ({human_bytes(count)})"


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name_text(name)}={name_text(value)}" for name, value in pairs) or "-"


def _value(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
