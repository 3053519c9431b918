"""Chains over rows become loops over them, which give the same numbers, in place too."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from sambac.graph.lanes import LANES
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.training.packs import ROW_BYTES, SHORTEST_BYTES, in_rows
from sambac.variants.chunks import UpdateInChunks

_HEAD = '<ir_version: 10, opset_import: ["" : 18, "com.microsoft" : 1]>'
_LONG = (1 << 15) // LANES
_ROWS = f"4,{LANES},{_LONG}"
_PORTS = ", ".join(
    (*(f"float[{_ROWS}] {name}" for name in "wgm"), f"float rate, float[4,{LANES},1] gates")
)
ADAM = """
    a = Mul (m, rate)  b = com.microsoft.GatedAdd (a, g, gates)
    r = Sqrt (w)  q = Div (b, r)  y = com.microsoft.GatedAdd (w, q, gates)"""


def model(text: str, outputs: str = "y", ports: str = _PORTS) -> ir.Model:
    made = ", ".join(f"float[{_ROWS}] {name}" for name in outputs.split())
    return shaped(f"{_HEAD} update ({ports}) => ({made}) {{ {text} }}")


def shaped(text: str) -> ir.Model:
    parsed = ir.from_onnx_text(text)
    InferShapes()(parsed)
    return parsed


def types(changed: ir.Model) -> list[str]:
    return [node.op_type for node in changed.graph]


def session(given: ir.Model) -> ort.InferenceSession:
    proto = ir.serde.serialize_model(given).SerializeToString()
    return ort.InferenceSession(proto, providers=["CPUExecutionProvider"])


def values(given: ort.InferenceSession) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        put.name: np.asarray(rng.uniform(0.5, 2, put.shape), np.float32)
        for put in given.get_inputs()
    }


@pytest.mark.parametrize("outputs", ["y", "y b", "b y q"])
def test_a_loop_over_rows_gives_the_same_numbers(outputs: str) -> None:
    before, after = model(ADAM, outputs), model(ADAM, outputs)
    assert UpdateInChunks()(after).modified
    assert types(after) == ["Scan"]
    plain, chunked = session(before), session(after)
    feeds = values(plain)
    for expected, found in zip(plain.run(None, feeds), chunked.run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_a_loop_may_write_over_what_it_reads() -> None:
    after = model(ADAM, "y b")
    UpdateInChunks()(after)
    plain, chunked = session(model(ADAM, "y b")), session(after)
    feeds = values(plain)
    expected = plain.run(["y", "b"], feeds)
    binding = chunked.io_binding()
    for name, array in feeds.items():
        binding.bind_input(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    for name, over in (("y", feeds["w"]), ("b", feeds["m"])):
        binding.bind_output(name, "cpu", 0, np.float32, over.shape, over.ctypes.data)
    chunked.run_with_iobinding(binding)
    np.testing.assert_array_equal(feeds["w"], expected[0])
    np.testing.assert_array_equal(feeds["m"], expected[1])


def test_chains_without_a_vector_in_common_are_loops_of_their_own() -> None:
    one = "a = Mul (w, rate)  b = Sqrt (a)  y = Exp (b)"
    other = "c = Mul (g, rate)  d = Sqrt (c)  z = Exp (d)"
    twice = model(f"{one}  {other}", "y z")
    UpdateInChunks()(twice)
    assert types(twice) == ["Scan", "Scan"]
    session(twice)


KEPT = {
    "two operators": ("a = Mul (w, rate)  y = Sqrt (a)", "y"),
    "read by another operator": (
        """a = Mul (w, rate)  b = Sqrt (a)  z = Exp (b)
           n = ReduceMax <keepdims = 0> (b)  y = Mul (g, n)""",
        "y z",
    ),
    "across rows": ("a = Softmax <axis = 0> (w)  b = Softmax <axis = 0> (a)  y = Exp (b)", "y"),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_gains_nothing_or_goes_across_rows_is_kept(name: str) -> None:
    text, outputs = KEPT[name]
    before = model(text, outputs)
    assert not UpdateInChunks()(before).modified


@pytest.mark.parametrize(
    "shape", [f"4,{LANES},1024", f"1,{_ROWS[2:]}", f"2,{LANES},{_LONG * 8}", f"4,{LANES * _LONG}"]
)
def test_rows_that_are_short_or_too_long_are_kept(shape: str) -> None:
    text = "a = Mul (w, rate)  b = Sqrt (a)  y = Exp (b)"
    given = shaped(
        f"{_HEAD} update (float[{shape}] w, float rate) => (float[{shape}] y) {{ {text} }}"
    )
    assert not UpdateInChunks()(given).modified


@pytest.mark.parametrize(
    "elements", [3 << 16, 5000 * 100, 50257 * 768, 3 * 5 * 7 << 16, 1024 * 1025, 1 << 26]
)
@pytest.mark.parametrize("itemsize", [4, 8])
def test_rows_fill_a_vector_and_begin_at_whole_lines(elements: int, itemsize: int) -> None:
    rows, lanes, length = in_rows(elements * itemsize, itemsize)
    assert rows * lanes * length == elements
    assert rows > 1
    assert lanes * length * itemsize % 64 == 0
    assert SHORTEST_BYTES <= lanes * length * itemsize <= ROW_BYTES


@pytest.mark.parametrize("elements", [0, 1, 1000, LANES * 1023, (3 << 16) - 1, (1 << 20) + 7])
def test_short_vectors_and_those_that_nothing_fills_stay_vectors(elements: int) -> None:
    assert in_rows(elements * 4, 4) == (elements,)


@pytest.mark.parametrize("elements", [LANES * 1024, (3 << 16) - 16, 262144 * 3 + 8])
def test_vectors_without_rows_have_lanes(elements: int) -> None:
    assert in_rows(elements * 4, 4) == (LANES, elements // LANES)
