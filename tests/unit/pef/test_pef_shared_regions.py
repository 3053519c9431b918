"""Every rule of shared regions is broken once, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest
from onnx import TensorProto, helper

import pef
import sambac
from pef.rules import check_program
from pef.states import shared_regions


@pytest.fixture(scope="module")
def program() -> pef.Program:
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "g", info[:1], info[1:])
    opsets = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    source = sambac.GraphSource("g", model)
    return sambac.compile_graphs([source], shared={"x": "r", "y": "r"})


def faults(program: pef.Program, **changes: object) -> str:
    return "\n".join(check_program(replace(program, **changes)))  # type: ignore[arg-type]


def test_the_program_is_right(program: pef.Program) -> None:
    assert check_program(program) == []
    assert list(shared_regions(program).values()) == [(0, 1)]


def test_without_the_feature_there_is_no_region(program: pef.Program) -> None:
    assert shared_regions(replace(program, requires=pef.Requirements())) == {}
    found = faults(program, requires=pef.Requirements(opsets=program.requires.opsets))
    assert "'r' is shared in a program that says it has no regions" in found


def test_a_region_is_persistent(program: pef.Program) -> None:
    regions = tuple(replace(region, persistent=0) for region in program.regions)
    assert "does not lie in the persistent part" in faults(program, regions=regions)


def test_a_member_is_the_whole_region(program: pef.Program) -> None:
    x, y = program.symbols
    short = replace(x, shape=(3,), size=12)
    assert "'x' is not the whole of the shared region 'r'" in faults(program, symbols=(short, y))


def test_members_are_of_one_type(program: pef.Program) -> None:
    x, y = program.symbols
    number = replace(x, dtype=TensorProto.INT32, type="tensor(int32)")
    assert "different element types" in faults(program, symbols=(number, y))


def test_members_are_inputs_and_outputs(program: pef.Program) -> None:
    x, y = program.symbols
    weight = replace(x, kind=pef.SymbolKind.CONSTANT)
    assert "'x' of kind CONSTANT is no input or output" in faults(program, symbols=(weight, y))
