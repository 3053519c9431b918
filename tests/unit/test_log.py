"""The log read back: its tables hold exactly what `sambac inspect --json` holds."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from pef.program import (
    Allocation,
    Argin,
    DataRef,
    Estimate,
    FusionGroup,
    NamedGraph,
    Operator,
    Piece,
    Port,
    Producer,
    Program,
    Region,
    RegionKind,
    Requirements,
    Section,
    SectionProgram,
    SectionType,
    Segment,
    Symbol,
    SymbolKind,
    Variant,
)
from pef.report import File, report
from sambac.log import render

Table = list[dict[str, str]]

_CELL = re.compile(r'(?:"(?:[^"\\]|\\.)*"|\S)+(?: (?:"(?:[^"\\]|\\.)*"|\S)+)*')
_WORD = re.compile(r'(?:"(?:[^"\\]|\\.)*"|[^\s"])+')


def program_of(names: list[str], shape: tuple[int | str | None, ...] | None = (1, 4)) -> Program:
    """Return a chain of sections, one for each name, from symbol 0 to symbol n + 1."""
    count = len(names)
    last = count + 1
    symbols = [Symbol("x", SymbolKind.INPUT, 1, shape, "tensor(float)", 0, 0, 16, -1, 0)]
    symbols.append(
        Symbol(
            "w",
            SymbolKind.WEIGHT,
            1,
            (4,),
            "tensor(float)",
            0,
            64,
            16,
            -1,
            count,
            DataRef(1, 0, 16),
        )
    )
    symbols += [
        Symbol(f"{name} out", SymbolKind.ACTIVATION, 1, (1, 4), "tensor(float)", 1, 0, 16, i, i + 1)
        for i, name in enumerate(names)
    ]
    sections = tuple(
        Section(
            name=name,
            type=SectionType.FWD,
            variants=(Variant(0),),
            inputs=(0 if i == 0 else i + 1,),
            weights=(1,),
            outputs=(i + 2,),
            groups=(FusionGroup(name, (Operator(name, "Add"), Operator(f"{name}/r", "Relu"))),),
            estimate=Estimate(1.2345678e-5, 8, 2, 3, 4096, 16, 16, 16, "weights"),
        )
        for i, name in enumerate(names)
    )
    return Program(
        producer=Producer(
            "sambac",
            "0.1.0",
            json.dumps({"inputs": {"x y": {"shape": [1, 4]}}, "level": "O0"}),
            "my model.onnx",
            "ab" * 32,
            (("numpy", "2.4"), ("onnx", "1.23")),
        ),
        requires=Requirements((("", 17), ("com.microsoft", 1)), ("paging",)),
        arch="sn40l",
        regions=(
            Region(RegionKind.HBM, 1 << 36, 4096, 80, 4000),
            Region(RegionKind.DDR, 9, 0, 0, 0),
        ),
        allocations=(Allocation(RegionKind.HBM, 0, 80), Allocation(RegionKind.HBM, 128, 16)),
        symbols=tuple(symbols),
        programs=(SectionProgram(DataRef(0, 0, 64), ("i0",), ("w0",), ("o0",)),),
        sections=sections,
        schedule=tuple(range(count)),
        graphs=(NamedGraph("main", (Port("x", 0),), (Port("y", last),), 0, count),),
        segments=(
            Segment("programs", 64, (Piece(0, b"p" * 64),)),
            Segment("weights", 16, (Piece(0, b"w" * 16),)),
        ),
    )


STRANGE_NAMES = [
    "conv1",
    "a name with  blanks",
    "",
    "-",
    'quo"te',
    "line\nbreak",
    "a,b=(c)[d]",
    "/layer.0/MatMul:0",
    "\x1b[31mred",
    "-> +",
    "3..4",
    "naïve·名前",
    "long" * 60,
]


@pytest.mark.parametrize("count", [0, 1, 5, 500])
def test_the_log_parses_back_to_the_report(count: int) -> None:
    program = program_of([f"node_{number}" for number in range(count)])
    file = File(name="m.pef", bytes=12345)
    assert parse_log(text_of(program, file)) == report(program, file)


def test_strange_names_parse_back() -> None:
    program = program_of(STRANGE_NAMES)
    assert parse_log(text_of(program)) == report(program)


@pytest.mark.parametrize(
    "shape", [None, (), (0,), (3, 224), ("batch", 3, None), ("3", "?", "a,b", "x", 4), ("",)]
)
def test_shapes_parse_back(shape: tuple[int | str | None, ...] | None) -> None:
    program = program_of(["a"], shape)
    assert parse_log(text_of(program)) == report(program)


def test_everything_optional_parses_back() -> None:
    program = program_of(["a", "b"])
    symbols = list(program.symbols)
    symbols[0] = replace(symbols[0], data=DataRef(1, 0, 16), allocation=None, size=0)
    symbols[2] = replace(symbols[2], type="seq(tensor(float))", dtype=0, shape=None)
    warning = "Section 0 needs 12 MiB of SRAM and has 4 MiB; " + "it streams its inputs again " * 9
    program = replace(
        program,
        symbols=tuple(symbols),
        argins=(Argin("lr", 0, 1e-3), Argin("odd name", 0, 0.1)),
        schedule=(0, 1, 0, 1, 1),
        warnings=(warning.strip(), "short"),
        requires=Requirements(),
        producer=replace(program.producer, libraries=(), source="", source_hash="", options="{}"),
    )
    assert parse_log(text_of(program)) == report(program)


def test_a_wide_group_is_wrapped_and_parses_back() -> None:
    program = program_of(["a"])
    operators = tuple(Operator(f"layer {i}/conv", "Conv") for i in range(40))
    section = replace(program.sections[0], groups=(FusionGroup("g", operators),))
    program = replace(program, sections=(section,))
    text = text_of(program)
    assert max(map(len, text.split("Fusion groups")[1].split("\n\n")[0].split("\n"))) <= 100
    assert parse_log(text) == report(program)


def test_the_json_survives_json() -> None:
    rows = report(program_of(STRANGE_NAMES))
    assert json.loads(json.dumps(rows)) == rows


def text_of(program: Program, file: File | None = None) -> str:
    return "\n".join(render(report(program, file))) + "\n"


# Reading a log: shares no code with the writer.


def parse_log(text: str) -> dict[str, object]:
    """Return the report whose log is `text`."""
    parts = dict(_split(text))
    whats = {row["what"]: row["value"] for row in _table(parts["Compilation"])}
    calls = _ranges(" ".join(parts["Schedule"][1:]).split())
    symbols = [_symbol(row, len(calls)) for row in _table(parts["Symbols"])]
    sections = _sections(parts)
    report: dict[str, object] = {
        "file": None
        if whats["file"] == "-"
        else {"name": _name(whats["file"]), "bytes": _exact(whats["file bytes"])},
        "format": whats["format"],
        "producer": {
            "tool": whats["producer"].split()[0],
            "version": whats["producer"].split()[1],
            "libraries": _pairs(whats["libraries"]),
        },
        "source": {
            "name": _name(whats["model"]),
            "sha256": "" if whats["sha256"] == "-" else whats["sha256"],
        },
        "options": {
            word.split("=", 1)[0]: json.loads(word.split("=", 1)[1])
            for word in _WORD.findall(whats["options"])
            if word != "-"
        },
        "arch": _name(whats["arch"]),
        "requires": {
            "opsets": {name: int(version) for name, version in _pairs(whats["opsets"]).items()},
            "features": [] if whats["features"] == "-" else whats["features"].split(),
        },
        "totals": _totals(sections, symbols, calls, whats["programs"]),
        "warnings": _warnings(parts.get("Warnings", [])),
        "graphs": list(_graphs(text)),
        "regions": _regions(parts),
        "op_types": [
            {"op_type": pair.split("=")[0], "count": int(pair.split("=")[1])}
            for pair in " ".join(parts["Operators"]).split()
            if pair != "(none)"
        ],
        "sections": sections,
        "schedule": calls,
        "argins": [
            {
                "name": _name(row["name"]),
                "symbol": int(row["symbol"]),
                "default": float(row["default"]),
            }
            for row in _table(parts.get("Argins", []))
        ],
        "segments": [
            {"name": _name(row["name"]), "bytes": _number(row["bytes"])}
            for row in _table(parts["Segments of the file"])
        ],
        "symbols": symbols,
    }
    return report


def _split(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each part's title without what is in brackets, and its lines."""
    for block in text.split("\n\n")[1:]:
        title, *lines = block.rstrip("\n").split("\n")
        yield title.split(" (")[0], lines


def _table(lines: list[str]) -> Table:
    if not lines or lines == ["  (none)"]:
        return []
    headers = _CELL.findall(lines[0])
    start = len(lines[0]) - len(headers[-1])
    assert set(lines[1]) == {" ", "-"}
    rows: list[list[str]] = []
    for line in lines[2:]:
        if not line[:start].strip():
            rows[-1][-1] += " " + line.strip()
        else:
            rows.append(_CELL.findall(line))
    return [dict(zip(headers, row, strict=True)) for row in rows]


def _name(cell: str) -> str:
    return str(json.loads(cell)) if cell.startswith('"') else cell


def _number(cell: str) -> int:
    return int(cell.replace(",", ""))


def _exact(cell: str) -> int:
    return _number(cell.split(" ")[0])


def _pairs(cell: str) -> dict[str, str]:
    if cell == "-":
        return {}
    pairs = re.findall(r'("(?:[^"\\]|\\.)*"|[^\s"=]+)=("(?:[^"\\]|\\.)*"|[^\s"=]+)', cell)
    return {_name(left): _name(right) for left, right in pairs}


def _ranges(words: list[str]) -> list[int]:
    found: list[int] = []
    for word in words:
        if word != "(none)":
            first, _, last = word.partition("..")
            found += range(int(first), int(last or first) + 1)
    return found


def _shape(cell: str) -> list[int | str | None] | None:
    if cell == "?":
        return None
    if not cell.startswith("["):
        return [int(size) for size in cell.split("x")]
    dims = re.findall(r'"(?:[^"\\]|\\.)*"|[^,]+', cell[1:-1])
    return [_dim(dim) for dim in dims]


def _dim(text: str) -> int | str | None:
    if text == "?":
        return None
    return int(text) if text.isdecimal() else _name(text)


def _warnings(lines: list[str]) -> list[str]:
    found: list[str] = []
    for line in lines:
        if line.startswith("  - "):
            found.append(line[4:])
        else:
            found[-1] += " " + line.strip()
    return found


def _graphs(text: str) -> Iterator[dict[str, object]]:
    opened: dict[str, object] = {}
    pattern = r"(Inputs|Outputs) of graph (.*), ([\d,]+) calls? from call (\d+)"
    for block in text.split("\n\n"):
        title, *lines = block.rstrip("\n").split("\n")
        found = re.fullmatch(pattern, title)
        if found is None:
            continue
        role, name, calls, first = found.groups()
        if role == "Inputs":
            opened = {"name": _name(name), "first_call": int(first), "calls": _number(calls)}
        opened[role.lower()] = [_port(row) for row in _table(lines)]
        if role == "Outputs":
            yield opened


def _port(row: dict[str, str]) -> dict[str, object]:
    return {
        "name": _name(row["name"]),
        "dtype": _name(row["dtype"]),
        "shape": _shape(row["shape"]),
        "bytes": _number(row["bytes"]),
        "optional": row["default"] == "yes",
        "symbol": int(row["symbol"]),
    }


def _regions(parts: dict[str, list[str]]) -> list[dict[str, object]]:
    largest = _table(parts["Largest symbols of each region"])
    return [
        {
            "name": row["region"],
            "capacity": _number(row["capacity bytes"]),
            "used": _number(row["used bytes"]),
            "persistent": _number(row["persistent"]),
            "peak_live": _number(row["peak live"]),
            "ratio": float(row["used/peak"]),
            "largest": [int(item["symbol"]) for item in largest if item["region"] == row["region"]],
        }
        for row in _table(parts["Regions"])
    ]


def _sections(parts: dict[str, list[str]]) -> list[dict[str, object]]:
    groups: dict[str, list[dict[str, object]]] = {}
    for row in _table(parts["Fusion groups"]):
        name, operators = _name(row["group"]), list(row.values())[2]
        groups.setdefault(row["section"], []).append(
            {"name": name, "operators": [_operator(op, name) for op in _WORD.findall(operators)]}
        )
    flows = {row["section"]: row["symbols"] for row in _table(parts["Data flow of the sections"])}
    found = []
    for row in _table(parts["Sections"]):
        reads, _, writes = flows[row["id"]].partition("->")
        inputs, _, weights = reads.partition("+")
        assert int(row["groups"]) == len(groups.get(row["id"], []))
        found.append(
            {
                "id": int(row["id"]),
                "name": _name(row["name"]),
                "type": row["type"],
                "programs": [int(x) for x in row["program"].split(",") if x != "-"],
                "operators": int(row["ops"]),
                "pcus": _number(row["PCUs"]),
                "pmus": _number(row["PMUs"]),
                "sram": _number(row["SRAM"]),
                "bytes_in": _number(row["bytes in"]),
                "bytes_out": _number(row["bytes out"]),
                "bytes_weights": _number(row["weights"]),
                "flops": _number(row["FLOP"]),
                "latency_us": float(row["us"].replace(",", "")),
                "limited_by": _name(row["limited by"]),
                "groups": groups.get(row["id"], []),
                "inputs": _ranges(inputs.split()),
                "weights": _ranges(weights.split()),
                "outputs": _ranges(writes.split()),
            }
        )
    return found


def _operator(word: str, group: str) -> dict[str, str]:
    op_type, _, name = word.partition("(")
    return {"name": _name(name[:-1]) if name else group, "op_type": op_type}


def _symbol(row: dict[str, str], calls: int) -> dict[str, object]:
    first, _, last = row["live in calls"].partition("..")
    return {
        "id": int(row["id"]),
        "name": _name(row["name"]),
        "kind": row["kind"],
        "dtype": _name(row["dtype"]),
        "shape": _shape(row["shape"]),
        "region": None if row["region"] == "-" else row["region"],
        "address": None if row["address"] == "-" else int(row["address"], 16),
        "bytes": _number(row["bytes"]),
        "first_call": -1 if first == "start" else int(first),
        "last_call": calls if last == "end" else int(last),
        "data": _data(row["data in file"]),
    }


def _data(cell: str) -> dict[str, object] | None:
    if cell == "-":
        return None
    segment, _, place = cell.rpartition("+")
    offset, _, size = place.partition(":")
    return {"segment": _name(segment), "offset": int(offset, 16), "bytes": int(size)}


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
        "program_bytes": _number(programs.split()[1]),
        "symbols": len(symbols),
        "weights": len(stored),
        "weight_bytes": sum(stored),
        "latency_us": round(sum(section["latency_us"] for section in called), 3),  # type: ignore[misc]
        **{
            key: sum(section[key] for section in called)  # type: ignore[misc]
            for key in ("flops", "bytes_in", "bytes_out", "bytes_weights")
        },
    }
