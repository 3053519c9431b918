"""Products of bytes are exact in models that come quantised, whatever the host multiplies by."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import sambac
import sambarun
from sambac.options import Level
from sambac.passes.legalize.unsigned_weights import UnsignedWeights
from sambarun.device import image

ROWS, SUMS, COLUMNS = 3, 64, 16
RNG = np.random.default_rng(0)
HEAD = '<ir_version: 10, opset_import: ["" : 21, "com.microsoft": 1]>'
OPERANDS = "a, xs, xz, w, ws, wz"
CASES = {
    "MatMulInteger": "p = MatMulInteger(a, w, xz) y = Cast <to = 1> (p)",
    "MatMulInteger with a zero": "p = MatMulInteger(a, w, xz, wz) y = Cast <to = 1> (p)",
    "MatMulIntegerToFloat": "y = com.microsoft.MatMulIntegerToFloat(a, w, xs, ws, xz, wz)",
    "DynamicQuantizeMatMul": "y = com.microsoft.DynamicQuantizeMatMul(x, w, ws, wz)",
    "QGemm": f"y = com.microsoft.QGemm({OPERANDS})",
    "QLinearMatMul": f"q = QLinearMatMul({OPERANDS}, ys, xz) y = DequantizeLinear(q, ys, xz)",
    "DequantizeLinear": "d = DequantizeLinear(a, xs, xz) e = DequantizeLinear(w, ws, wz)"
    " y = MatMul(d, e)",
    "DequantizeLinear without zeros": "d = DequantizeLinear(a, xs) e = DequantizeLinear(w, ws)"
    " y = MatMul(d, e)",
}

OF_UNSIGNED_DATA = ("QGemm", "MatMulIntegerToFloat", "DynamicQuantizeMatMul")
CASES_AND_KINDS = [
    (case, kind)
    for case in CASES
    for kind in ("uint8", "int8")
    if kind == "uint8" or case not in OF_UNSIGNED_DATA
]


def model(body: str, kind: str, weights: np.ndarray, given: bool) -> onnx.ModelProto:
    """Return a model that quantises x, [3, 64], to `kind`, and multiplies it by `weights`."""
    more = f", int8[{SUMS}, {COLUMNS}] w" if given else ""
    text = f"""{HEAD} g (float[{ROWS}, {SUMS}] x{more}) => (float[{ROWS}, {COLUMNS}] y) {{
        a = QuantizeLinear(x, xs, xz) {body} }}"""
    made = onnx.parser.parse_model(text)
    constants = {
        "xs": np.float32(1), "ws": np.float32(1), "ys": np.float32(2**14),
        "xz": np.zeros((), kind), "wz": np.zeros((), np.int8),
        **({} if given else {"w": weights}),
    }  # fmt: skip
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.asarray(content), name)
        for name, content in constants.items()
    )
    return made


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("given", [False, True], ids=["constant", "given"])
@pytest.mark.parametrize(("case", "kind"), CASES_AND_KINDS)
def test_the_largest_products_are_exact(case: str, kind: str, given: bool, level: Level) -> None:
    ends = np.iinfo(kind)
    x = np.full((ROWS, SUMS), ends.max, np.float32)
    x[2] = RNG.integers(ends.min, ends.max, SUMS)
    x[:, 0] = 0 if kind == "uint8" else ends.min  # what is quantised in a run has the scale 1
    x[:, 1] = ends.max
    weights = np.full((SUMS, COLUMNS), 127, np.int8)
    weights[:, 1], weights[:, 2] = -128, RNG.integers(-128, 128, SUMS)
    exact = x.astype(np.float64) @ weights
    if case == "QLinearMatMul":
        exact = np.clip(np.rint(exact / 2**14), ends.min, ends.max) * 2**14
    made = model(CASES[case], kind, weights, given)
    program = sambac.compile(made, options=sambac.CompileOptions(level=level))
    with sambarun.load(program, threads=1) as executable:
        (found,) = executable.run({"x": x, **({"w": weights} if given else {})}).values()
    np.testing.assert_allclose(found, exact, atol=1e-6 * np.abs(exact).max())


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("channels", [False, True], ids=["one scale", "a scale for each channel"])
@pytest.mark.parametrize("group", [1, 8])
@pytest.mark.parametrize("form", ["QLinearConv", "DequantizeLinear"])
def test_the_largest_sums_of_convolutions_are_exact(
    form: str, group: int, channels: bool, kind: str
) -> None:
    ends, scale = np.iinfo(kind), 2**14
    images = np.full((1, 8, 3, 3), ends.max, np.float32)
    weights = np.full((16, 8 // group, 3, 3), 127, np.int8)
    weights[1] = -128
    body = {
        "QLinearConv": f"q = QLinearConv <group = {group}> ({OPERANDS}, ys, xz)",
        "DequantizeLinear": f"""d = DequantizeLinear(a, xs, xz)
            e = DequantizeLinear <axis = 0> (w, ws, wz) c = Conv <group = {group}> (d, e)
            q = QuantizeLinear(c, ys, xz)""",
    }[form]
    text = f"""{HEAD} g (float[1, 8, 3, 3] x) => (float[1, 16, 1, 1] y) {{
        a = QuantizeLinear(x, xs, xz) {body} y = DequantizeLinear(q, ys, xz) }}"""
    made = onnx.parser.parse_model(text)
    size = (16,) if channels else ()
    for name, content in {
        "w": weights, "xs": np.float32(1), "xz": np.zeros((), kind), "ys": np.float32(scale),
        "ws": np.ones(size, np.float32), "wz": np.zeros(size, np.int8),
    }.items():  # fmt: skip
        made.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(content), name))
    sums = ends.max * weights.astype(np.float64).sum((1, 2, 3))
    exact = np.clip(np.rint(sums / scale), ends.min, ends.max) * scale
    with sambarun.load(sambac.compile(made), threads=1) as executable:
        (found,) = executable.run({"x": images}).values()
    np.testing.assert_array_equal(found.reshape(-1), exact)


@pytest.mark.parametrize(("most", "changes"), [(64, False), (65, True)])
def test_small_weights_stay_as_they_are(most: int, changes: bool) -> None:
    weights = np.full((SUMS, COLUMNS), -most, np.int8)
    made = model(CASES["DequantizeLinear"], "uint8", weights, given=False)
    assert UnsignedWeights()(ir.serde.deserialize_model(made)).modified == changes


@pytest.mark.parametrize("case", CASES)
def test_hosts_that_multiply_them_read_signed_weights(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = RNG.integers(0, 100, (ROWS, SUMS)).astype(np.float32)
    x[:, 0], x[:, 1] = 0, 255  # the scale of what is quantised in a run is 1
    weights = RNG.integers(-128, 128, (SUMS, COLUMNS)).astype(np.int8)
    weights[1], weights[2, 2] = 0, 127
    exact = x.astype(np.float64) @ weights
    if case == "QLinearMatMul":
        exact = np.clip(np.rint(exact / 2**14), 0, 255) * 2**14
    program = sambac.compile(model(CASES[case], "uint8", weights, given=False))
    assert {stored.requires for stored in program.programs} == {(), ("u8s8",)}
    for features in (frozenset(), frozenset({"u8s8"})):
        monkeypatch.setattr(image, "host_features", lambda tuning, has=features: has)
        with sambarun.load(program, threads=1) as executable:
            (found,) = executable.run({"x": x}).values()
        np.testing.assert_allclose(found, exact, atol=1e-6 * np.abs(exact).max())
