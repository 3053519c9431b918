"""The report: what a program holds, as plain data."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass, replace

import pytest

import pef
from pef.container import DataRef, Segment
from pef.costs import Estimate
from pef.program import (
    FusionGroup,
    NamedGraph,
    Operator,
    Port,
    Producer,
    Program,
    Requirements,
    Section,
    SectionProgram,
    SectionType,
    Variant,
)
from pef.report import more, report
from pef.symbols import Allocation, Region, RegionKind, Symbol, SymbolKind

FLOAT = "tensor(float)"


@pytest.fixture
def program() -> Program:
    """Two calls of one section: x, w -> y; x has a default and y no planned place."""
    group = FusionGroup(
        "g", (Operator("a", "Conv", 0), Operator("b", "Relu", 1), Operator("c", "Conv", 2))
    )
    estimate = Estimate(1.23456e-6, 100, 1, 2, 3, 10, 20, 30, "compute")
    section = Section("s", SectionType.FWD, (Variant(0),), (0,), (1,), (2,), (group,), estimate)
    return Program(
        producer=Producer("sambac", "1.0", '{"level": "O3"}', "m.onnx", "ff", (("numpy", "2"),)),
        requires=Requirements((("", 17),)),
        arch="sn10",
        regions=(Region(RegionKind.DDR, 1000, 300, 40, 240), Region(RegionKind.HOST, 9, 0, 0, 0)),
        allocations=(Allocation(RegionKind.DDR, 64, 128),),
        symbols=(
            Symbol("x", SymbolKind.INPUT, 1, ("n", 4), FLOAT, 0, 16, 32, -1, 1, DataRef(1, 8, 32)),
            Symbol(
                *("w", SymbolKind.WEIGHT, 1, (8,), FLOAT, 0, 64, 32, -1, 2),
                data=DataRef(1, 64, 32),
                origins=("k", "s"),
            ),
            Symbol("y", SymbolKind.OUTPUT, 0, None, "seq(tensor(float))", None, 0, 0, 0, 2),
        ),
        programs=(SectionProgram(DataRef(0, 0, 77), ("i0",), ("w0",), ("o0",)),),
        sections=(section,),
        schedule=(0, 0),
        graphs=(NamedGraph("main", (Port("X", 0),), (Port("Y", 2),), 0, 2),),
        segments=(Segment("programs", 77, ()), Segment("weights", 96, ())),
        warnings=("two\n  lines",),
    )


def test_identity(program: Program) -> None:
    rows = report(program, {"name": "m.pef", "bytes": 5})
    assert rows["file"] == {"name": "m.pef", "bytes": 5}
    assert rows["producer"] == {"tool": "sambac", "version": "1.0", "libraries": {"numpy": "2"}}
    assert rows["source"] == {"name": "m.onnx", "sha256": "ff"}
    assert rows["options"] == {"level": "O3"}
    assert rows["requires"] == {"opsets": {"": 17}, "features": []}
    assert rows["warnings"] == ["two lines"]


def test_totals_count_every_call(program: Program) -> None:
    totals = report(program)["totals"]
    assert totals["sections"] == 1
    assert totals["calls"] == 2
    assert totals["latency_us"] == 2.47
    assert (totals["flops"], totals["bytes_in"], totals["bytes_out"]) == (200, 20, 40)
    assert totals["bytes_weights"] == 60
    assert (totals["weights"], totals["weight_bytes"]) == (1, 32)
    assert (totals["programs"], totals["program_bytes"]) == (1, 77)


def test_addresses_are_those_of_the_region(program: Program) -> None:
    x, w, y = report(program)["symbols"]
    assert (x["region"], x["address"]) == ("DDR", 80)
    assert (w["region"], w["address"]) == ("DDR", 128)
    assert (y["region"], y["address"], y["dtype"]) == (None, None, "seq(tensor(float))")
    assert x["data"] == {"segment": "weights", "offset": 8, "bytes": 32}
    assert (x["origins"], w["origins"]) == ([], ["k", "s"])


def test_ports_bear_public_names(program: Program) -> None:
    (graph,) = report(program)["graphs"]
    assert graph["inputs"][0]["name"] == "X"
    assert graph["inputs"][0]["shape"] == ["n", 4]
    assert graph["inputs"][0]["optional"]
    assert not graph["outputs"][0]["optional"]


def test_regions_rate_the_plan(program: Program) -> None:
    ddr, host = report(program)["regions"]
    assert (ddr["ratio"], host["ratio"]) == (1.25, 1.0)
    assert ddr["largest"] == [0, 1]
    assert host["largest"] == []


def test_operators_are_counted_most_frequent_first(program: Program) -> None:
    assert report(program)["op_types"] == [
        {"op_type": "Conv", "count": 2},
        {"op_type": "Relu", "count": 1},
    ]


def test_it_is_json(program: Program) -> None:
    rows = report(program)
    assert json.loads(json.dumps(rows)) == rows
    assert report(replace(program, producer=Producer("t", "0", ""))).get("options") == {}


def test_every_field_of_the_format_has_a_place() -> None:
    """And no other has; a place is where `building` shows it, or the end of the report."""
    classes = {name: getattr(pef, name) for name in pef.__all__ if is_dataclass(getattr(pef, name))}
    placed = {name: set(names.split()) for name, names in more._PLACED.items()}
    fields_of = {name: {field.name for field in fields(row)} for name, row in classes.items()}
    assert placed.keys() <= fields_of.keys()
    assert not [name for name, names in placed.items() if names - fields_of[name]]
