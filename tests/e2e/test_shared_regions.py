"""Inputs and outputs of graphs that share memory: what one run leaves, another reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions, GraphSource
from sambac.reconstruct.verify import check_plans

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 4)).astype("f")
CACHE = RNG.standard_normal((2, 4)).astype("f")


def graph(
    name: str, nodes: list[tuple[str, str, str]], inputs: str, outputs: str, size: int = 4
) -> GraphSource:
    made = [
        helper.make_node(kind, given.split(), taken.split(), name=f"n{number}")
        for number, (kind, given, taken) in enumerate(nodes)
    ]
    given, taken = (
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, size]) for n in names.split()]
        for names in (inputs, outputs)
    )
    body = helper.make_graph(made, name, given, taken)
    opsets = [helper.make_opsetid("", 18)]
    return GraphSource(name, helper.make_model(body, opset_imports=opsets, ir_version=9))


FILL = graph("fill", [("Exp", "x", "kept")], "x", "kept")
# Reads the old cache after it has made the new one.
STEP = graph(
    "step",
    [("Add", "x old", "new"), ("Tanh", "new", "t"), ("Mul", "t old", "m"), ("Neg", "m", "y")],
    "x old",
    "new y",
)
SHARED = {"fill.kept": "cache", "step.old": "cache", "step.new": "cache"}


def compiled(shared: Mapping[str, str] = SHARED, level: str = "O3") -> pef.Program:
    options = CompileOptions(level=level)  # type: ignore[arg-type]
    return sambac.compile_graphs([FILL, STEP], options, shared=shared)


@pytest.fixture(scope="module", params=["O0", "O3"])
def program(request: pytest.FixtureRequest) -> pef.Program:
    return compiled(level=request.param)


def step(cache: np.ndarray, x: np.ndarray = X) -> tuple[np.ndarray, np.ndarray]:
    new = x + cache
    return new, -(np.tanh(new) * cache)


def test_members_lie_in_one_allocation_that_nobody_else_uses(
    program: pef.Program, tmp_path: Path
) -> None:
    symbols = {symbol.name: symbol for symbol in program.symbols}
    homes = {symbols[name].allocation for name in ("kept", "old", "new")}
    (home,) = homes
    assert home is not None
    assert program.allocations[home].name == "cache"
    assert sum(symbol.allocation == home for symbol in program.symbols) == 3
    assert "shared_regions" in program.requires.features
    assert pef.check_program(program) == []
    program.save(tmp_path / "m.pef")
    with pef.open(tmp_path / "m.pef") as file:
        assert check_plans(file.program) == []


@pytest.mark.parametrize("link", [True, False])
def test_a_graph_goes_on_from_what_another_left(program: pef.Program, link: bool) -> None:
    executable = sambarun.load(program, link=link)
    cache = executable.run({"x": X}, graph="fill")["kept"]
    np.testing.assert_allclose(cache, np.exp(X), rtol=1e-6)
    for _ in range(3):
        found = executable.run({"x": X}, graph="step")
        cache, y = step(cache)
        np.testing.assert_allclose(found["new"], cache, rtol=1e-5)
        np.testing.assert_allclose(found["y"], y, rtol=1e-5)
    np.testing.assert_allclose(executable.read("old")["old"], cache, rtol=1e-5)
    again = executable.clone().run({"x": X}, graph="step")["new"]
    np.testing.assert_allclose(again, step(cache)[0], rtol=1e-5)
    profiled = executable.profile({"x": X}, graph="step").outputs["y"]
    np.testing.assert_allclose(profiled, step(cache)[1], rtol=1e-5)


def test_a_given_value_replaces_what_is_there(program: pef.Program) -> None:
    executable = sambarun.load(program)
    found = executable.run({"x": X, "old": CACHE}, graph="step")
    np.testing.assert_allclose(found["y"], step(CACHE)[1], rtol=1e-5)
    found = executable.run({"x": X}, graph="step")
    np.testing.assert_allclose(found["new"], step(step(CACHE)[0])[0], rtol=1e-5)
    executable.write({"step.old": CACHE})
    found = executable.run({"x": X}, graph="step")
    np.testing.assert_allclose(found["new"], step(CACHE)[0], rtol=1e-5)


def test_an_output_alone_in_its_region_is_read_by_another_graph() -> None:
    executable = sambarun.load(compiled({"kept": "r", "old": "r"}))
    for factor in (1, 2):
        executable.run({"x": factor * X}, graph="fill")
        found = executable.run({"x": X}, graph="step")["y"]
        np.testing.assert_allclose(found, step(np.exp(factor * X))[1], rtol=1e-5)


def test_nothing_is_read_before_something_was_written(program: pef.Program) -> None:
    with pytest.raises(
        sambarun.RunError,
        match=r"'old' is missing: .* expected; give it, or first run 'fill' or 'step', which",
    ):
        sambarun.load(program).run({"x": X}, graph="step")
    with pytest.raises(sambarun.RunError, match=r"'x' is missing: float32\[2, 4\] was expected\.$"):
        sambarun.load(program).run({}, graph="fill")


def test_a_region_is_placed_by_one_of_its_members() -> None:
    program = sambac.compile_graphs(
        [FILL, STEP], CompileOptions(memory={"step.old": "DDR"}), shared=SHARED
    )
    found = {allocation.name: allocation.region.name for allocation in program.allocations}
    assert found["cache"] == "DDR"


def test_what_cannot_be_shared_is_named() -> None:
    other = graph("wide", [("Exp", "x", "z")], "x", "z", size=5)
    cases = [
        ({"fill.keep": "r"}, ["'fill.keep' (did you mean 'fill.kept'?)"]),
        ({"x": "r", "step.old": "r"}, ["several inputs of graph 'step'"]),
        ({"fill.kept": "r", "wide.z": "r"}, ["differ in type or size", "40 bytes"]),
        ({"fill.kept": "y"}, ["name of another tensor"]),
        ({"fill.kept": "r", "kept": "s"}, ["'kept' is in two regions"]),
    ]
    for shared, words in cases:
        with pytest.raises(CompileError) as caught:
            sambac.compile_graphs([FILL, STEP, other], shared=shared)
        assert all(word in str(caught.value) for word in words), str(caught.value)
