"""What a run is given is borrowed until it returns: nothing reads the caller's arrays later."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import parser

import sambac
import sambarun
from sambac import CompileOptions

BEFORE, AFTER = 1.0, 7.0
SMALL, LARGE = 3, 20_000
HEAD = '<ir_version: 9, opset_import: ["" : 19]>'

MODELS = {
    "computed": "g (float[N,4] x) => (float[N,4] y) { h = Relu(x) y = Sqrt(h) }",
    "handed through": "g (float[N,4] x) => (float[N,4] x, float[N,4] y) { y = Relu(x) }",
    "the same values": "g (float[N,4] x) => (float[N,4] z) { z = Identity(x) }",
    "another shape": (
        "g (float[N,4] x) => (float[M] z) { s = Constant<value_ints=[-1]>() z = Reshape(x, s) }"
    ),
    "into a sequence": "g (float[N,4] x) => (seq(float[N,4]) z) { z = SequenceConstruct(x) }",
    "a sequence": (
        "g (seq(float[N,4]) x) => (float[N,4] y) "
        "{ k = Constant<value_int=0>() h = SequenceAt(x, k) y = Relu(h) }"
    ),
    "a sequence handed through": (
        "g (seq(float[N,4]) x) => (seq(float[N,4]) x, float[N,4] y) "
        "{ k = Constant<value_int=0>() y = SequenceAt(x, k) }"
    ),
    "an optional": "g (optional(float[N,4]) x) => (optional(float[N,4]) z) { z = Identity(x) }",
    "an optional handed through": "g (optional(float[N,4]) x) => (optional(float[N,4]) x) { }",
}


def loaded(text: str, level: str, rows: int, free: bool = True) -> sambarun.Executable:
    """Compile a model whose rows are any number, or always `rows`."""
    model: onnx.ModelProto = parser.parse_model(
        HEAD + text.replace("N", "N" if free else str(rows))
    )
    return sambarun.load(sambac.compile(model, CompileOptions(level=level)))


def numbers(value: object) -> np.ndarray:
    """Return the numbers in a result, an array or a list of one."""
    return np.asarray(value[0] if isinstance(value, list) else value)


def readable(executable: sambarun.Executable) -> dict[str, np.ndarray]:
    """Return all that can be read now."""
    found = {}
    for symbol in executable.program.symbols:
        try:
            found |= executable.read(symbol.name)
        except sambarun.RunError:
            continue
    return found


Run = Callable[[sambarun.Executable, dict[str, object]], dict[str, np.ndarray]]
RUNS: dict[str, Run] = {
    "copied": lambda e, given: e.run(given),
    "views": lambda e, given: e.run(given, copy=False),
    "profiled": lambda e, given: e.profile(given).outputs,
    "by calls": lambda e, given: e.run(given, calls=range(len(e.program.schedule))),
}


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("free", [True, False], ids=["any", "fixed"])
@pytest.mark.parametrize("rows", [SMALL, LARGE])
@pytest.mark.parametrize("name", MODELS)
def test_nothing_reads_the_callers_array_when_a_run_has_returned(
    name: str, rows: int, free: bool, level: str
) -> None:
    executable = loaded(MODELS[name], level, rows, free)
    in_a_list = "g (seq(" in MODELS[name]
    for run in RUNS.values():
        array = np.full((rows, 4), BEFORE, "f")
        results = run(executable, {"x": [array] if in_a_list else array})
        array[:] = AFTER
        for found in (*results.values(), *readable(executable).values()):
            np.testing.assert_array_equal(numbers(found), BEFORE)


def test_results_of_python_are_not_the_callers_objects() -> None:
    executable = loaded(
        "g (string[N] x) => (string[N] x, string[N] y) { y = Identity(x) }", "O3", 2
    )
    words = np.array(["a", "b"], dtype=object)
    results = executable.run({"x": words})
    words[:] = "changed"
    for found in results.values():
        assert list(found) == ["a", "b"]


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_what_another_section_computes_is_given_for_one_run(rows: int) -> None:
    executable = loaded(
        "g (float[N,4] x) => (float[N,4] y) { h = Relu(x) s = SequenceConstruct(h, h) "
        "k = Constant<value_int=1>() y = SequenceAt(s, k) }",
        *("O0", rows),
    )
    program = executable.program
    for number, section in enumerate(program.sections):
        for symbol in (program.symbols[index] for index in section.inputs):
            array = np.full((rows, 4), BEFORE, "f")
            value = [array, array] if symbol.type.startswith("seq") else array
            fresh = sambarun.load(program)
            fresh.run({symbol.name: value}, section_ids=[number])
            array[:] = AFTER
            with pytest.raises(sambarun.RunError, match=r"missing|has not been computed"):
                fresh.run({}, section_ids=[number])


def test_what_a_refused_run_was_given_is_not_read() -> None:
    executable = loaded(
        "g (float[N,4] x, float[N,4] k) => (float[N,4] y) { y = Add(x, k) }", "O3", 3
    )
    array = np.full((LARGE, 4), BEFORE, "f")
    with pytest.raises(sambarun.RunError, match="Input 'k' is missing"):
        executable.run({"x": array})
    assert readable(executable) == {}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("size", [SMALL, 300])
@pytest.mark.parametrize("given", ["run", "write"])
def test_results_that_stayed_may_be_given_back(
    given: str, size: int, level: str, copy: bool
) -> None:
    """Their memory is what a run writes to, while it reads them."""
    square = f"float[{size},{size}]"
    model = onnx.parser.parse_model(
        f"{HEAD} g ({square} x, {square} b) => ({square} y, {square} z) "
        "{ y = Transpose<perm=[1,0]>(x) k = Softmax<axis=0>(y) z = MatMul(k, b) }"
    )
    executable = sambarun.load(sambac.compile(model, CompileOptions(level=level)))
    draw = np.random.default_rng(0)
    first = {name: draw.standard_normal((size, size), "f") for name in ("x", "b")}
    for x, b in (("y", "z"), ("z", "y"), ("y", "y")):
        views = executable.run(first, copy=False)
        again = {"x": views[x], "b": views[b]}
        expected = sambarun.load(executable.program).run({n: a.copy() for n, a in again.items()})
        if given == "write":
            executable.write(again)
        found = executable.run(again if given == "run" else {}, copy=copy)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    views = executable.run(first, copy=False)
    swapped = {"y": views["z"], "z": views["y"]}
    expected = {name: array.copy() for name, array in swapped.items()}
    executable.write(swapped)
    for name, array in executable.read("y", "z").items():
        np.testing.assert_array_equal(array, expected[name])
