"""Loops and scans whose limits or shapes are said only in part, at every level."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

LEVELS = ("O0", "O1", "O3")

_SHAPE_BY_DECLARATION = """
    (float[2, 3] x, int64 n, bool go) => (z) {
        v = Loop (n, go, x) <body = step (int64 i, bool more, float[2, 3] a)
            => (bool goes, float[2, 3] b) { goes = Identity(more)  b = Add(a, x) }>
        s, z = Scan (v, x) <num_scan_inputs: int = 1, body = each (float[2, 3] t, float[3] row)
            => (float[2, 3] u, float[2, 3] out) { u = Identity(t)  out = Add(v, row) }>
    }
"""
"""The ONNX library does not know the shape of `v`, and so not that of `out`."""

_NO_STEP = """
    (float[2, 3] x, int64 n, bool go) => (z) {
        v = Loop (n, go, x) <body = step (int64 i, bool more, float[2, 3] a)
            => (bool goes, float[2, 3] b) { goes = Identity(more)  b = Add(a, x) }>
        no = Constant <value: tensor = bool {0}> ()
        w, z = Loop (n, no, x) <body = other (int64 j, bool on, float[2, 3] c)
            => (bool goes_on, float[2, 3] d, float[2, 3] out)
            { goes_on = Identity(on)  d = Neg(c)  out = Identity(v) }>
    }
"""

_NOTHING_CARRIED = """
    (float[2, 3] x, int64 n, bool go) => (z) {
        z = Loop (n, "") <body = step (int64 i, bool more) => (bool goes, float[2, 3] out)
            { goes = Identity(more)  f = Cast <to: int = 1> (i)  out = Add(x, f) }>
    }
"""


def _model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["": 18]> g {text}')


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", [0, 3])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (_SHAPE_BY_DECLARATION, lambda x, n: ((1 + n) * x)[None] + x[:, None]),
        (_NO_STEP, lambda x, n: np.zeros((0, 2, 3), np.float32)),
        (
            _NOTHING_CARRIED,
            lambda x, n: x + np.arange(n, dtype=np.float32)[:, None, None],
        ),
    ],
    ids=["shape_by_declaration", "no_step", "nothing_carried"],
)
def test_loops_and_scans(text: str, expected: object, n: int, level: str) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    program = sambac.compile(_model(text), sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "n": np.int64(n), "go": np.bool_(True)})["z"]
    wanted = expected(x, n)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_what_counts_steps_needs_no_shape(level: str) -> None:
    """Onnxruntime refuses a body whose first inputs have none, though they can but be scalars."""
    model = _model(_NOTHING_CARRIED)
    for value in model.graph.node[0].attribute[0].g.input:
        value.type.tensor_type.ClearField("shape")
    x = np.ones((2, 3), np.float32)
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "n": np.int64(2), "go": np.bool_(True)})["z"]
    np.testing.assert_array_equal(found, np.stack([x, x + 1]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("sizes", [(2, 0), (0, 3), (2, 3)])
@pytest.mark.parametrize("open_", [False, True])
def test_steps_without_elements(open_: bool, sizes: tuple[int, int], axis: int, level: str) -> None:
    """The kernel ends the process where it turns what has no elements."""
    spelled = "A, B" if open_ else ", ".join(map(str, sizes))
    text = f"""(float[4] x, float[{spelled}] e) => (z, w) {{
        z, w = Scan (x) <num_scan_inputs: int = 1, scan_output_axes: ints = [{axis}, 0],
            body = each (float t) => (float[{spelled}] out, float u) {{
            out = Add(e, t)  u = Neg(t) }}>
    }}"""
    x = np.arange(4, dtype=np.float32)
    e = np.ones(sizes, np.float32)
    program = sambac.compile(_model(text), sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "e": e})
    np.testing.assert_array_equal(found["z"], np.stack([e + t for t in x], axis))
    np.testing.assert_array_equal(found["w"], -x)


_SUMS = """Scan (s, x) <num_scan_inputs: int = 1, body = each (float[2] a, float[2] row)
    => (float[2] t{result}) { t = Add(a, row) {more} }>"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("scanned", [True, False], ids=["states and rows", "states"])
def test_scans_of_no_steps(scanned: bool, level: str) -> None:
    """Their states stay as they are; the kernel fails."""
    result, more = (", float[2] out", "out = Neg(t)") if scanned else ("", "")
    left = "y, z" if scanned else "y"
    text = f"(float[0, 2] x, float[2] s) => ({left}) {{ {left} = {_SUMS} }}"
    text = text.replace("{result}", result).replace("{more}", more)
    feeds = {"x": np.zeros((0, 2), np.float32), "s": np.arange(2, dtype=np.float32)}
    program = sambac.compile(_model(text), sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        ports = {port.name for port in program.graphs[0].inputs}
        found = executable.run({name: feeds[name] for name in ports})
    np.testing.assert_array_equal(found["y"], feeds["s"])
    assert not scanned or found["z"].shape == (0, 2)


def test_a_scan_of_an_open_number_of_steps_says_that_there_are_none() -> None:
    scan = _SUMS.replace("{result}", ", float[2] out").replace("{more}", "out = Neg(t)")
    model = _model(f"(float[n, 2] x, float[2] s) => (y, z) {{ y, z = {scan} }}")
    feeds = {"x": np.zeros((0, 2), np.float32), "s": np.arange(2, dtype=np.float32)}
    with (
        sambarun.load(sambac.compile(model)) as executable,
        pytest.raises(sambarun.RunError, match=r"a Scan has no steps.*one step or more"),
    ):
        executable.run(feeds)


_READS_AROUND = """
    (float[n] x, float w, bool up) => (float[n] y) <int64 one = {1}> {
        s = SplitToSequence <axis: int = 0> (x, one)
        t = SequenceMap (s) <body = each (float[m] e) => (float[m] f) {
            p = Mul(e, w)
            f = If (up) <then_branch = a () => (float[m] g) { g = Add(p, w) },
                         else_branch = b () => (float[m] h) { h = Sub(p, w) }>
        }>
        y = ConcatFromSequence <axis: int = 0> (t)
    }
"""


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("up", [False, True])
def test_a_map_of_sequences_reads_what_is_around_it(up: bool, level: str) -> None:
    """The body that ONNX gives for SequenceMap takes nothing but inputs."""
    x, w = np.arange(4, dtype=np.float32), np.float32(3)
    program = sambac.compile(_model(_READS_AROUND), sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "w": w, "up": np.bool_(up)})["y"]
    np.testing.assert_array_equal(found, x * w + (w if up else -w))
