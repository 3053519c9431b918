"""Every rule of `check_program` is broken once, and says so; `write` and `open` heed them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pef
from pef import Program, RegionKind, SectionType
from pef.rules import check_essential, check_program

# What is changed: a field of the program, the index in it, and what is replaced there.
Fault = tuple[str, int, Any]

REF = pef.DataRef


def groups(*operators: pef.Operator) -> tuple[pef.FusionGroup, ...]:
    """A group for each of `operators`."""
    return tuple(pef.FusionGroup(f"g{i}", (operator,)) for i, operator in enumerate(operators))


# A symbol whose size is known only at run time.
OPEN = {"shape": (2, "n"), "allocation": None, "size": 0}

ESSENTIAL: list[tuple[Fault, str]] = [
    # references
    (("symbols", 0, {"allocation": 3}), "symbol 'x' refers to allocation 3 of 3"),
    (("symbols", 0, {"allocation": -1}), "symbol 'x' refers to allocation -1 of 3"),
    (("symbols", 1, {"data": REF(2, 0, 64)}), "the data of symbol 'w' is in segment 2 of 2"),
    (("symbols", 1, {"data": REF(1, 67, 64)}), "said to be bytes 67 to 131 of segment 'weights'"),
    (("symbols", 1, {"data": REF(1, -1, 64)}), "said to be bytes -1 to 63 of segment 'weights'"),
    (("symbols", 1, {"data": REF(1, 2**64 - 1, 64)}), "the data of symbol 'w' is said to be bytes"),
    (("programs", 0, {"graph": REF(0, 10, 5)}), "the graph of program 0 is said to be bytes 10"),
    (("sections", 0, {"inputs": (6,)}), "section 'first' refers to symbol 6 of 6"),
    (("sections", 0, {"weights": (-1,)}), "section 'first' refers to symbol -1 of 6"),
    (("sections", 0, {"outputs": (999,)}), "section 'first' refers to symbol 999 of 6"),
    (("sections", 0, {"variants": (pef.Variant(2),)}), "section 'first' refers to program 2 of 2"),
    (("sections", 1, {"in_place": ((1, 0),)}), "'second' refers to in-place input 1 of 1"),
    (("sections", 1, {"in_place": ((0, 2),)}), "'second' refers to in-place output 2 of 2"),
    (("schedule", 1, 2), "the schedule refers to section 2 of 2"),
    (("graphs", 0, {"calls": 3}), "graph 'main' covers calls 0 to 3 of 2"),
    (("graphs", 0, {"inputs": (pef.Port("x", 6),)}), "graph 'main' refers to symbol 6 of 6"),
    (("argins", 0, {"symbol": 6}), "argin 'lr' refers to symbol 6 of 6"),
    (("aliases", 0, {"symbol": 6}), "alias 'linear__weight' refers to symbol 6 of 6"),
    (("host_kernels", 0, {"inputs": (6,)}), "a host kernel 'mask' refers to symbol 6 of 6"),
    (("host_kernels", 0, {"section": 2}), "a host kernel 'mask' refers to section 2 of 2"),
    (("segments", 0, {"size": 13}), "the pieces of segment 'programs' end at 14, its size is 13"),
    (
        ("segments", 0, {"pieces": (pef.Piece(0, b"first"), pef.Piece(4, b"x"))}),
        "a piece of segment 'programs' at 4 overlaps the one before",
    ),
    # memory
    (("regions", 0, {"capacity": 255}), "region HBM has 255 bytes, 256 are used"),
    (("regions", 0, {"persistent": 257}), "region HBM uses 256 bytes, less than its 257 persist"),
    (("regions", 1, {"kind": RegionKind.HBM}), "region HBM is listed twice"),
    (("regions", 0, {"bandwidth": float("nan")}), "region HBM has the bandwidth nan"),
    (("regions", 1, {"bandwidth": -1.0}), "region DDR has the bandwidth -1.0"),
    (("allocations", 1, {"spilled": True}), "allocation 1 is in HBM and said to have spilled"),
    (("regions", 0, {"used": 255, "peak_live": 1}), "bytes 192 to 256 of HBM, of which 255 are"),
    (("allocations", 0, {"region": RegionKind.HOST}), "allocation 0 'in' is in HOST, which is no"),
    (("allocations", 1, {"address": 2**64 - 1}), "allocation 1 is said to be bytes 184467440737"),
    (("allocations", 1, {"size": -1}), "allocation 1 is said to be bytes 0 to -1"),
    (("symbols", 0, {"dtype": 99, "type": ""}), "symbol 'x' has the unknown element type 99"),
    (("symbols", 0, {"dtype": 0, "type": ""}), "symbol 'x' has the unknown element type 0"),
    (("symbols", 0, {"dtype": 6}), "symbol 'x' is a tensor(float) of element type 6, expected 1"),
    (("symbols", 0, {"shape": (2, -8)}), "symbol 'x' has the shape (2, -8)"),
    (("symbols", 0, {"shape": (2, 9)}), "symbol 'x' has 64 bytes, its shape and element type"),
    (("symbols", 0, {"shape": (2, "n")}), "symbol 'x' has an address or data although its size"),
    (("symbols", 1, OPEN), "symbol 'w' has an address or data although its size"),
    (("symbols", 0, {**OPEN, "type": "seq(tensor(float))"}), "symbol 'x' has an address or data"),
    (("symbols", 0, {"shape": (2**40, 2**40)}), "symbol 'x' has more bytes than can be addressed"),
    (("symbols", 0, {"shape": (2**60,) * 400}), "symbol 'x' has more bytes than can be addressed"),
    (("symbols", 0, {"data": REF(1, 0, 60)}), "symbol 'x' has 60 bytes of data, its shape"),
    (
        ("symbols", 0, {"offset": 1}),
        "symbol 'x' is said to be bytes 1 to 65 of an allocation of 64",
    ),
    (("symbols", 2, {"last_call": 3}), "symbol 'y' lives from call 0 to 3 of 2"),
    (("symbols", 2, {"first_call": -2}), "symbol 'y' lives from call -2 to 1 of 2"),
    (("symbols", 2, {"first_call": 2}), "symbol 'y' lives from call 2 to 1 of 2"),
    (("symbols", 1, {"last_call": 1}), "weight 'w' does not live through the whole schedule"),
    (("symbols", 1, {"data": None}), "weight 'w' has no data"),
    (("allocations", 2, {"address": 129}), "'y', 'y2' and 'x' overlap in HBM while both live"),
    (("allocations", 2, {"address": 64}), "'y', 'y2' and 'w' overlap in HBM while both live"),
    # schedule
    (("graphs", 0, {"chip_calls": (0,)}), "graph 'main' begin with the calls [0], which are not"),
    (("graphs", 0, {"chip_calls": (1, 1)}), "graph 'main' begin with the calls [1, 1], which are"),
    (("graphs", 0, {"chip_calls": (2,)}), "graph 'main' begin with the calls [2], which are not"),
    (("graphs", 0, {"stage_calls": (2, 1)}), "the stages of graph 'main' begin with the calls [2"),
    (("sections", 0, {"variants": ()}), "section 'first' of type FWD has 0 programs"),
    (("sections", 0, {"type": SectionType.REDUCE}), "'first' of type REDUCE has 1 programs"),
    (
        ("sections", 1, {"outputs": (3,)}),
        "'second' binds (1, 0, 1) inputs, weights and outputs, its program 1 has (1, 0, 2)",
    ),
    (
        ("programs", 0, {"outputs": ("b", "")}),
        "'first' binds (1, 1, 1) inputs, weights and outputs, its program 0 has (1, 1, 2)",
    ),
    (("programs", 0, {"weights": ("a",)}), "program 0 has two tensors of the same formal name"),
    (("programs", 1, {"outputs": ("c", "c")}), "program 1 has two tensors of the same formal"),
    (("programs", 0, {"weights": ("",)}), "program 0 has a weight without a formal name"),
    (
        ("programs", 0, {"inputs": ("",)}),
        "program 0 of section 'first' lacks inputs or outputs, and runs",
    ),
    (("sections", 0, {"weights": (5,)}), "'first' binds 'lr', which has no data, as a weight"),
    (("symbols", 3, {"allocation": 0}), "'second' updates 'y' in place as 'y2', which lies else"),
    (("symbols", 2, {"first_call": -1}), "'y' is said to be there before any call computes it"),
    (("sections", 0, {"inputs": (3,)}), "call 0 (section 'first') reads 'y2', which nothing has"),
    (("sections", 1, {"outputs": (3, 2)}), "call 1 (section 'second') writes 'y', which has been"),
    (("symbols", 2, {"last_call": 0}), "uses 'y', which lives from call 0 to 0"),
    (("symbols", 3, {"first_call": 2}), "uses 'y2', which lives from call 2 to 2"),
    (("graphs", 0, {"inputs": (pef.Port("y", 2),)}), "input 'y' of graph 'main' is computed by"),
    (("sections", 0, {"outputs": (4,)}), "call 1 (section 'second') reads 'y', which nothing"),
    (("symbols", 4, {"last_call": 1}), "output 'l' of graph 'main' does not live to its end"),
    # names
    (("symbols", 1, {"name": "x"}), "two things have one name: symbol 'x'"),
    (("symbols", 1, {"name": ""}), "a symbol has no name"),
    (("sections", 1, {"name": "first"}), "two things have one name: section 'first'"),
    (("segments", 1, {"name": "programs"}), "two things have one name: segment 'programs'"),
    (
        ("graphs", 0, {"outputs": (pef.Port("y", 3), pef.Port("y", 4))}),
        "two things have one name: output of graph 'main' 'y'",
    ),
]
DESCRIPTIVE: list[tuple[Fault, str]] = [
    (
        ("allocations", 1, {"reason": pef.PlacementReason.USER, "cost": 1.0}),
        "allocation 1 has a cost, but its reason is USER",
    ),
    (("allocations", 1, {"cost": float("inf")}), "allocation 1 has the cost inf"),
    (("graphs", 0, {"policy_latency": -1.0}), "graph 'main' has the policy latency -1.0"),
    (("sections", 0, {"estimate": pef.Estimate(math.nan)}), "'first' has an impossible estimate"),
    (("sections", 0, {"estimate": pef.Estimate(flops=-1)}), "'first' has an impossible estimate"),
    (("sections", 0, {"estimate": pef.Estimate(link=-1.0)}), "'first' has an impossible estimate"),
    (
        ("sections", 0, {"estimate": pef.Estimate(4.0, launch=1.0, compute=2.0, streams=1.0)}),
        "section 'first' is said to take 4 s, but the terms of that add up to 3 s",
    ),
    (
        ("sections", 0, {"groups": groups(pef.Operator("mm", "MatMul", 0, 7, 4))}),
        "section 'first' is said to take 512 flops, its operators 7",
    ),
    (
        ("sections", 0, {"groups": groups(pef.Operator("mm", "MatMul", 0, 512, 3))}),
        "section 'first' is said to take 4 pcus, its operators 3",
    ),
    (
        ("sections", 0, {"groups": groups(pef.Operator("mm", "MatMul", 0, 512, 4, (0, 99)))}),
        "operator 'mm' makes the unknown element type 99",
    ),
    (("symbols", 2, {"declared": 11}), "symbol 'y' has float64 in its model, which takes no fewer"),
    (("symbols", 2, {"declared": 8}), "symbol 'y' has string in its model, which takes no fewer"),
    (("symbols", 2, {"declared": 99}), "symbol 'y' has the unknown element type 99 in its model"),
    (("argins", 0, {"default": math.inf}), "argin 'lr' has the default inf"),
    (("symbols", 1, {"origins": ("b", "a")}), "origins of symbol 'w' are not names, sorted and"),
    (("symbols", 1, {"origins": ("a", "a")}), "origins of symbol 'w' are not names, sorted and"),
    (("symbols", 1, {"origins": ("", "a")}), "origins of symbol 'w' are not names, sorted and"),
    (("symbols", 2, {"origins": ("a",)}), "symbol 'y' has origins, but no data that was computed"),
    (
        ("sections", 0, {"groups": groups(pef.Operator("mm", "MatMul", -1))}),
        "operator 'mm' of section 'first' is said to be node -1 of its program",
    ),
    (
        (
            "sections",
            0,
            {"groups": groups(pef.Operator("b", "Add", 0), pef.Operator("a", "Add", 0))},
        ),
        "operator 'a' of section 'first' is node 0 of its program, as another operator is",
    ),
    (("symbols", 0, OPEN), "the default of 'x' has no shape that fits the input's"),
    (("host_kernels", 0, {"parameters": "[]"}), "parameters of host kernel 0 are no JSON object"),
]
FAULTS = [*ESSENTIAL, *DESCRIPTIVE]
WHOLE: list[tuple[dict[str, Any], str]] = [
    ({"device": (pef.DeviceNumber("pcus", math.inf),)}, "number 'pcus' of the device is inf"),
    (
        {"device": (pef.DeviceNumber("pcus", 1.0), pef.DeviceNumber("pcus", 2.0))},
        "the number 'pcus' of the device is there twice",
    ),
    ({"requires": pef.Requirements((("", 21), ("", 22)))}, "domains are not sorted and distinct"),
    ({"requires": pef.Requirements((("b", 1), ("a", 1)))}, "domains are not sorted and distinct"),
    ({"requires": pef.Requirements((("", 0),))}, "opset '' has version 0"),
    ({"producer": pef.Producer("t", "1", "{")}, "the producer's options are no JSON object"),
    ({"schedule": ()}, "graph 'main' covers calls 0 to 2 of 0"),
]


def broken(program: Program, fault: Fault) -> Program:
    table, index, change = fault
    rows = list(getattr(program, table))
    rows[index] = replace(rows[index], **change) if isinstance(change, dict) else change
    return replace(program, **{table: tuple(rows)})


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_broken_rule_is_named(program: Program, fault: Fault, message: str) -> None:
    problems = check_program(broken(program, fault))
    assert any(message in problem for problem in problems), problems
    assert len(problems) == len(set(problems))


@pytest.mark.parametrize(("change", "message"), WHOLE)
def test_a_broken_rule_of_the_whole_is_named(
    program: Program, change: dict[str, Any], message: str
) -> None:
    problems = check_program(replace(program, **change))
    assert any(message in problem for problem in problems), problems


def test_a_right_program_has_no_problems(program: Program) -> None:
    assert check_program(program) == []


def test_all_problems_come_at_once(program: Program, tmp_path: Path) -> None:
    worse = broken(broken(program, FAULTS[23][0]), ("argins", 0, {"default": math.nan}))
    with pytest.raises(pef.PefError, match="2 problems") as error:
        pef.write(worse, tmp_path / "bad.pef")
    assert len(error.value.problems) == 2
    assert list(tmp_path.iterdir()) == []


def test_the_same_output_twice_is_no_fault(program: Program) -> None:
    ports = (pef.Port("y", 3), pef.Port("y", 3), pef.Port("l", 4), pef.Port("z", 3))
    assert check_program(broken(program, ("graphs", 0, {"outputs": ports}))) == []


def test_an_argument_may_be_a_result(program: Program) -> None:
    longer = broken(program, ("symbols", 0, {"last_call": 2}))
    ports = (*program.graphs[0].outputs, pef.Port("x", 0))
    assert check_program(broken(longer, ("graphs", 0, {"outputs": ports}))) == []


def test_symbols_share_addresses_one_after_the_other(program: Program) -> None:
    """x is dead when 'second' runs, so y2 may take its place if it is no update in place."""
    moved = broken(program, ("symbols", 3, {"allocation": 0}))
    assert check_program(broken(moved, ("sections", 1, {"in_place": ()}))) == []
    alive = broken(moved, ("symbols", 0, {"last_call": 1}))
    one_allocation = broken(alive, ("sections", 1, {"in_place": ()}))
    assert check_program(one_allocation) == []  # sharing an allocation is a statement of intent


def test_a_gap_in_the_life_of_an_allocation_can_be_used() -> None:
    """Allocation 0 is busy at calls 0 and 2; allocation 1 has the same bytes at call 1."""

    def chain(middle: tuple[int, int]) -> Program:
        symbols = tuple(
            pef.Symbol(name, pef.SymbolKind.BUFFER, 1, (4,), "tensor(float)", where, 0, 16, *life)
            for name, where, life in (("a", 0, (-1, 0)), ("b", 1, middle), ("c", 0, (2, 3)))
        )
        hbm = pef.RegionKind.HBM
        return Program(
            producer=pef.Producer("test", "1", "{}"),
            requires=pef.Requirements(),
            arch="sn40l",
            regions=(pef.Region(hbm, 64, 16, 0, 16),),
            allocations=(pef.Allocation(hbm, 0, 16), pef.Allocation(hbm, 0, 16)),
            symbols=symbols,
            programs=(),
            sections=(pef.Section("s", SectionType.REDUCE, (), (), (), (), (), pef.Estimate()),),
            schedule=(0, 0, 0),
            graphs=(),
            segments=(),
        )

    assert check_program(chain((1, 1))) == []
    assert check_program(chain((1, 2))) == ["'a', 'c' and 'b' overlap in HBM while both live"]
    assert check_program(chain((0, 1))) == ["'b' and 'a', 'c' overlap in HBM while both live"]


def test_opening_checks_what_running_relies_on(program: Program) -> None:
    for fault, message in ESSENTIAL:
        assert any(message in problem for problem in check_essential(broken(program, fault)))
    for fault, _ in DESCRIPTIVE:
        assert check_essential(broken(program, fault)) == []
