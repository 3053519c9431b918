"""A reader of logs that shares no code with their writer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from log_cells import (
    WORD,
    Table,
    exact,
    formal,
    formulation,
    index,
    label,
    layer,
    narrowed,
    number,
    pairs,
    ranges,
    shape,
    table,
    unquoted,
)
from log_costs import costs, device, spill, time

Report = dict[str, object]


def read_log(text: str) -> dict[str, object]:
    """Return the report whose log is `text`."""
    parts = dict(_split(text))
    whats = {row["what"]: row["value"] for row in table(parts["Compilation"])}
    calls = ranges(" ".join(parts["Schedule"][1:]).split())
    origins = {
        row["symbol"]: [unquoted(word) for word in WORD.findall(row["computed from"])]
        for row in table(parts.get("Derived weights", []))
    }
    symbols = [
        {**_symbol(row, len(calls)), "origins": origins.get(row["id"], [])}
        for row in table(parts["Symbols"])
    ]
    sections = _sections(parts)
    return {
        **_identity(whats),
        "totals": _totals(sections, symbols, calls, whats["programs"]),
        "warnings": _warnings(parts.get("Warnings", [])),
        "training": _training(parts),
        "absent": [
            {
                "symbol": int(row["symbol"]),
                "bytes": number(row["bytes"]),
                "name": unquoted(row["name"]),
            }
            for row in table(parts.get("Absent weights", []))
        ],
        "layers": [layer(row) for row in table(parts.get("Layers", []))],
        "formulations": [formulation(row) for row in table(parts.get("Formulations", []))],
        "graphs": list(_graphs(text, table(parts["Graphs"]))),
        "regions": _regions(parts),
        "spills": [spill(row) for row in table(parts.get("Spills", []))],
        "op_types": [
            {"op_type": pair.split("=")[0], "count": int(pair.split("=")[1])}
            for pair in " ".join(parts["Operators"]).split()
            if pair != "(none)"
        ],
        "sections": sections,
        "schedule": calls,
        "argins": [_argin(row) for row in table(parts.get("Argins", []))],
        "host_kernels": [_host_kernel(row) for row in table(parts.get("Host kernels", []))],
        "aliases": [
            {
                "name": unquoted(row["name"]),
                "symbol": int(row["symbol"]),
                "api": "" if row["api"] == "-" else row["api"],
            }
            for row in table(parts.get("Aliases", []))
        ],
        "segments": [
            {"name": unquoted(row["name"]), "bytes": number(row["bytes"])}
            for row in table(parts["Segments of the file"])
        ],
        "programs": [_program(row) for row in table(parts["Programs"])],
        "allocations": [_allocation(row) for row in table(parts["Allocations"])],
        "symbols": symbols,
        "device": device(parts),
        "more": [
            {
                "of": "" if row["of"] == "program" else unquoted(row["of"]),
                "field": row["field"],
                "value": json.loads(row["value"]),
            }
            for row in table(parts.get("More", []))
        ],
    }


def _program(row: dict[str, str]) -> dict[str, object]:
    reads, _, outputs = row["inputs + fixed weights -> outputs"].partition("->")
    inputs, _, weights = f" {reads}".partition(" + ")
    return {
        "id": int(row["program"]),
        "graph": _data(row["graph"], number(row["bytes"])),
        "call_form": row["called"],
        "requires": []
        if row["requires"] == "-"
        else list(map(unquoted, row["requires"].split(","))),
        "inputs": formal(inputs),
        "weights": formal(weights),
        "outputs": formal(outputs),
    }


def _allocation(row: dict[str, str]) -> dict[str, object]:
    marks = row["marks"].split(",")
    return {
        "id": int(row["id"]),
        "region": row["region"],
        "address": int(row["address"], 16),
        "bytes": number(row["bytes"]),
        "name": label(row["name"]),
        "spilled": "spilled" in marks,
        "shared": "shared" in marks,
        "reason": row["reason"].upper(),
        "cost_us": time(row["cost us"]),
    }


def _argin(row: dict[str, str]) -> dict[str, object]:
    return {
        "name": unquoted(row["name"]),
        "symbol": int(row["symbol"]),
        "default": float(row["default"]),
        "group": "" if row["group"] == "-" else unquoted(row["group"]),
        "option": "" if row["option"] == "-" else unquoted(row["option"]),
    }


def _training(parts: dict[str, list[str]]) -> dict[str, object] | None:
    if "Training" not in parts:
        return None
    whats = {row["what"]: row["value"] for row in table(parts["Training"])}
    return {
        **{
            what: [unquoted(word) for word in WORD.findall(value) if word != "-"]
            for what, value in whats.items()
        },
        "memory": [
            {"kind": row["kind"]}
            | {key: number(row[key]) for key in ("tensors", "elements", "bytes")}
            for row in table(parts["Training memory"])
        ],
    }


def _host_kernel(row: dict[str, str]) -> dict[str, object]:
    return {
        "kind": unquoted(row["kind"]),
        "section": int(row["section"]),
        "inputs": [int(word) for word in row["reads"].split() if word != "-"],
        "outputs": [int(word) for word in row["writes"].split() if word != "-"],
        "parameters": json.loads(row["parameters"]),
    }


def _identity(whats: dict[str, str]) -> dict[str, object]:
    return {
        "file": None
        if whats["file"] == "-"
        else {"name": unquoted(whats["file"]), "bytes": exact(whats["file bytes"])},
        "format": whats["format"],
        "producer": {
            "tool": whats["producer"].split()[0],
            "version": whats["producer"].split()[1],
            "libraries": pairs(whats["libraries"]),
        },
        "source": {
            "name": unquoted(whats["model"]),
            "sha256": "" if whats["sha256"] == "-" else whats["sha256"],
        },
        "options": {
            word.split("=", 1)[0]: json.loads(word.split("=", 1)[1])
            for word in WORD.findall(whats["options"])
            if word != "-"
        },
        "arch": unquoted(whats["arch"]),
        "requires": {
            "opsets": {name: int(version) for name, version in pairs(whats["opsets"]).items()},
            "features": [] if whats["features"] == "-" else whats["features"].split(),
        },
    }


def _split(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each part's title without what is in brackets, and its lines."""
    for block in text.split("\n\n")[1:]:
        title, *lines = block.rstrip("\n").split("\n")
        yield title.split(" (")[0], lines


def _warnings(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if line.startswith("  - "):
            found.append(line[4:])
        else:
            found[-1] += " " + line.strip()
    return found


def _graphs(text: str, costs: Table) -> Iterator[dict[str, object]]:
    rows = iter(costs)
    opened: dict[str, object] = {}
    pattern = r"(Inputs|Outputs) of graph (.*), ([\d,]+) calls? from call (\d+)"
    for block in text.split("\n\n"):
        title, *lines = block.rstrip("\n").split("\n")
        found = re.fullmatch(pattern, title)
        if found is None:
            continue
        role, name, calls, first = found.groups()
        if role == "Inputs":
            opened = {"name": unquoted(name), "first_call": int(first), "calls": number(calls)}
        opened[role.lower()] = [_port(row) for row in table(lines)]
        if role == "Outputs":
            row = next(rows)
            told = (unquoted(row["graph"]), int(row["first call"]), number(row["calls"]))
            assert told == (opened["name"], opened["first_call"], opened["calls"])
            opened |= {
                "model": label(row["model"]),
                "role": row["role"].upper(),
                "latency_us": float(row["us"].replace(",", "")),
                "policy_us": time(row["policy us"]),
                "flops": number(row["FLOP"]),
                "bytes_weights": number(row["fixed weights"]),
            }
            opened |= {f"bytes_{way}": number(row[way]) for way in ("in", "out")}
            yield opened


def _port(row: dict[str, str]) -> dict[str, object]:
    return {
        "name": unquoted(row["name"]),
        "dtype": unquoted(row["dtype"]),
        "shape": shape(row["shape"]),
        "bytes": number(row["bytes"]),
        "optional": row["default"] == "yes",
        "symbol": int(row["symbol"]),
        "gradient": index(row["gradient"]),
    }


def _regions(parts: dict[str, list[str]]) -> list[dict[str, object]]:
    largest = table(parts["Largest symbols of each region"])
    return [
        {
            "name": row["region"],
            "capacity": number(row["capacity"]),
            "used": number(row["used"]),
            "persistent": number(row["persistent"]),
            "peak_live": number(row["peak live"]),
            "ratio": float(row["used/peak"]),
            "bandwidth": None if row["bytes/s"] == "-" else float(row["bytes/s"].replace(",", "")),
            "largest": [int(item["symbol"]) for item in largest if item["region"] == row["region"]],
        }
        for row in table(parts["Regions"])
    ]


def _sections(parts: dict[str, list[str]]) -> list[dict[str, object]]:
    groups: dict[str, list[dict[str, object]]] = {}
    for row in table(parts["Fusion groups"]):
        name = unquoted(row["group"])
        nodes = ranges(row["nodes"].replace("-", "").replace(",", " ").split())
        words = WORD.findall(list(row.values())[3])
        operators = [{**_operator(w, name), "node": n} for w, n in zip(words, nodes, strict=True)]
        groups.setdefault(row["section"], []).append({"name": name, "operators": operators})
    flows = {row["section"]: row for row in table(parts["Data flow"])}
    chosen = {
        (row["section"], int(row["program"])): row
        for row in table(parts.get("Programs that run while argins are zero, or not", []))
    }
    terms = costs(parts, groups)
    found = []
    for row in table(parts["Sections"]):
        flow = flows[row["id"]]
        reads, _, writes = flow["inputs + fixed weights -> outputs"].partition("->")
        inputs, _, weights = reads.partition("+")
        writes, _, in_place = writes.partition("in place")
        programs = [int(x) for x in flow["program"].split(",") if x != "-"]
        asked = [chosen.get((row["id"], number), {}) for number in programs]
        assert int(row["groups"]) == len(groups.get(row["id"], []))
        found.append(
            {
                "id": int(row["id"]),
                "name": unquoted(row["name"]),
                "type": row["type"],
                "programs": programs,
                "zeros": [_named(each.get("zero", "-")) for each in asked],
                "nonzeros": [_named(each.get("not zero", "-")) for each in asked],
                "operators": int(row["ops"]),
                "pcus": number(row["PCUs"]),
                "pmus": number(row["PMUs"]),
                "sram": number(row["SRAM"]),
                "bytes_in": number(row["in"]),
                "bytes_out": number(row["out"]),
                "bytes_weights": number(row["fixed weights"]),
                "flops": number(flow["FLOP"]),
                "latency_us": float(row["us"].replace(",", "")),
                "limited_by": unquoted(row["limit"]),
                "terms": terms.get(row["id"]),
                "groups": groups.get(row["id"], []),
                "inputs": ranges(inputs.split()),
                "weights": ranges(weights.split()),
                "outputs": ranges(writes.split()),
                "in_place": list(_updates(in_place.split())),
            }
        )
    return found


def _updates(words: list[str]) -> Iterator[dict[str, int]]:
    for word in words:
        old, mark, new = word.partition(">")
        pairs = [(int(old), int(new))] if mark else [(n, n) for n in ranges([word])]
        yield from ({"old": before, "new": after} for before, after in pairs)


def _named(cell: str) -> list[str]:
    return [] if cell == "-" else [unquoted(word) for word in WORD.findall(cell)]


def _operator(word: str, group: str) -> dict[str, object]:
    kind, _, name = word.partition("(")
    op_type, typed, types = kind.partition(":")
    return {
        "name": unquoted(name[:-1]) if name else group,
        "op_type": op_type,
        "declared": types.split(",") if typed else [],
    }


def _symbol(row: dict[str, str], calls: int) -> dict[str, object]:
    first, _, last = row["calls"].partition("..")
    declared, _, dtype = unquoted(row["dtype"]).rpartition("/")
    return {
        "id": int(row["id"]),
        "name": unquoted(row["name"]),
        "kind": row["kind"],
        "dtype": dtype,
        "declared": declared,
        "device_bytes": narrowed(number(row["bytes"]), declared, dtype),
        "shape": shape(row["shape"]),
        "region": None if row["region"] == "-" else row["region"],
        "address": None if row["address"] == "-" else int(row["address"], 16),
        "bytes": number(row["bytes"]),
        "first_call": -1 if first == "start" else int(first),
        "last_call": calls if last == "end" else int(last),
        "allocation": index(row["alloc"]),
        "duration": row["lasts"].upper(),
        "parameter": index(row["of"]),
        "pack": index(row["pack"]),
        "data": _data(row["data"], number(row["bytes"])),
    }


def _data(cell: str, size: int) -> dict[str, object] | None:
    if cell == "-":
        return None
    segment, _, place = cell.rpartition("+")
    offset, _, count = place.partition(":")
    return {"segment": unquoted(segment), "offset": int(offset, 16), "bytes": int(count or size)}


def _totals(
    sections: list[dict[str, object]],
    symbols: list[dict[str, object]],
    calls: list[int],
    programs: str,
) -> dict[str, object]:
    called = [sections[number] for number in calls]
    stored = [s["data"]["bytes"] for s in symbols if s["kind"] == "WEIGHT" and s["data"]]  # type: ignore[index]
    return {
        "sections": len(sections),
        "sections_by_type": dict(Counter(section["type"] for section in sections)),
        "calls": len(calls),
        "groups": sum(len(section["groups"]) for section in sections),  # type: ignore[arg-type]
        "operators": sum(section["operators"] for section in sections),  # type: ignore[misc]
        "programs": int(programs.split()[0]),
        "program_bytes": number(programs.split()[1]),
        "symbols": len(symbols),
        "weights": len(stored),
        "weight_bytes": sum(stored),
        "latency_us": round(sum(section["latency_us"] for section in called), 3),  # type: ignore[misc]
        **{
            key: sum(section[key] for section in called)  # type: ignore[misc]
            for key in ("flops", "bytes_in", "bytes_out", "bytes_weights")
        },
    }
