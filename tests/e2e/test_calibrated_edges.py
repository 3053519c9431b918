"""Calibrated programs at the edges: dead filters, constant images, outputs without errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest

import pef
import sambac
import sambarun
from pef.report import report
from sambac.numerics.integers import in_blocks, relative_error
from sambac.quantization.measuring import Errors
from sambarun.device import image

RNG = np.random.default_rng(0)
IMAGE = RNG.uniform(0, 255, (1, 4, 8, 8)).astype(np.float32)
FILTERS = (RNG.standard_normal((4, 4, 3, 3)) * 0.01).astype(np.float32)
ROWS = RNG.standard_normal((2, 64)).astype(np.float32)
MATRIX = RNG.standard_normal((64, 64)).astype(np.float32)
Arrays = Mapping[str, np.ndarray]


def model(text: str, **weights: np.ndarray) -> onnx.ModelProto:
    parsed = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> network {text}')
    for name, content in weights.items():
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return parsed


def calibrated(
    network: onnx.ModelProto, samples: Arrays, folder: Path, **options: object
) -> pef.Program:
    path = folder / "samples.npz"
    np.savez(path, **samples)  # type: ignore[arg-type]
    chosen = {"precision": "int8", "calibrate": path, **options}
    return sambac.compile(network, sambac.CompileOptions(**chosen))  # type: ignore[arg-type]


def run(program: pef.Program, feeds: Arrays) -> dict[str, np.ndarray]:
    with sambarun.load(program, threads=1) as executable:
        return {name: np.array(value) for name, value in executable.run(dict(feeds)).items()}


def operators(program: pef.Program) -> list[str]:
    return [
        operator.op_type
        for section in program.sections
        for group in section.groups
        for operator in group.operators
    ]


def applied(program: pef.Program) -> list[str]:
    return list(json.loads(program.producer.options)["applied"])


@pytest.mark.parametrize("size", [0.0, 1e-14, 1e-44])
@pytest.mark.parametrize("bias", [0.3, -40.0])
def test_filters_of_nothing_keep_their_bias(size: float, bias: float, tmp_path: Path) -> None:
    filters = FILTERS.copy()
    filters[1] *= np.float32(size)
    text = "(float[1,4,8,8] x) => (float[1,4,6,6] y) { y = Conv (x, w, b) }"
    network = model(text, w=filters, b=np.full(4, bias, np.float32))
    exact = run(sambac.compile(network), {"x": IMAGE})["y"]
    found = run(calibrated(network, {"x": IMAGE}, tmp_path), {"x": IMAGE})["y"]
    np.testing.assert_allclose(found, exact, atol=np.ptp(exact) / 100)
    np.testing.assert_allclose(found[:, 1], bias, atol=np.ptp(exact) / 400)


def test_an_image_that_is_a_constant(tmp_path: Path) -> None:
    text = "(float[1,4,6,6] x) => (float[1,4,6,6] y) { c = Conv (i, w)  y = Add (x, c) }"
    network = model(text, i=IMAGE, w=FILTERS)
    feeds = {"x": IMAGE[:, :, :6, :6]}
    found = run(calibrated(network, feeds, tmp_path), feeds)["y"]
    np.testing.assert_allclose(found, run(sambac.compile(network), feeds)["y"], rtol=1e-5)


def test_clips_to_an_end_that_is_an_input(tmp_path: Path) -> None:
    network = model(
        """(float[1,4,8,8] x, float high) => (float[1,4,6,6] y)
        { low = Constant <value = float {0}> ()  c = Conv (x, w)  y = Clip (c, low, high) }""",
        w=FILTERS,
    )
    samples = {"x": IMAGE, "high": np.asarray(100, np.float32)}
    program = calibrated(network, samples, tmp_path)
    assert run(program, {**samples, "high": np.asarray(0.5, np.float32)})["y"].max() == 0.5


@pytest.mark.parametrize("zeros", [(np.int8(0), np.uint8(0)), (np.uint8(0), np.int8(0))])
def test_codes_of_another_type_are_made(
    zeros: tuple[np.generic, np.generic], tmp_path: Path
) -> None:
    network = model(
        f"""(float[1,4,8,8] x, float[4] a) => (float[1,4,6,6] y, {zeros[1].dtype.name}[4] b)
        {{
            y = Conv (x, w)
            q = QuantizeLinear (a, s, za)
            d = DequantizeLinear (q, s, za)
            b = QuantizeLinear (d, s, zb)
        }}""",
        w=FILTERS, s=np.asarray(0.5, np.float32), za=np.asarray(zeros[0]), zb=np.asarray(zeros[1]),
    )  # fmt: skip
    feeds = {"x": IMAGE, "a": np.array([0, 5, -7, 100], np.float32)}
    found = run(calibrated(network, feeds, tmp_path), feeds)["b"]
    exact = run(sambac.compile(network), feeds)["b"]
    assert found.dtype == exact.dtype
    np.testing.assert_array_equal(found, exact)


def test_outputs_of_float16_have_errors(tmp_path: Path) -> None:
    text = "(float[2,64] x) => (float16[2,64] y) { t = MatMul (x, w)  y = Cast <to = 10> (t) }"
    program = calibrated(model(text, w=MATRIX), {"x": ROWS}, tmp_path, max_error=1e-6)
    assert applied(program) == ["0 of 1 layers quantised", "relative error of 'y': 0"]


def test_a_largest_error_without_an_output_that_has_one(tmp_path: Path) -> None:
    text = "(float[2,64] x) => (int64[2,64] y) { t = MatMul (x, w)  y = Cast <to = 7> (t) }"
    network = model(text, w=MATRIX)
    assert applied(calibrated(network, {"x": ROWS}, tmp_path)) == ["1 of 1 layers quantised"]
    with pytest.raises(sambac.CompileError, match="network has none; let it give out one"):
        calibrated(network, {"x": ROWS}, tmp_path, max_error=0.1)


def test_outputs_that_no_array_holds(tmp_path: Path) -> None:
    network = model(
        """(float[2,64] x) => (bfloat16[2,64] y, float[2,64] z)
        { z = MatMul (x, w)  y = Cast <to = 16> (z) }""",
        w=MATRIX,
    )
    found = applied(calibrated(network, {"x": ROWS}, tmp_path, max_error=0.1))
    assert [line.split(":")[0] for line in found[1:]] == ["relative error of 'z'"]


def test_infinite_numbers_hide_no_error(tmp_path: Path) -> None:
    text = """(float[2,64] x, bool[2,64] c) => (float[2,64] y)
        { t = MatMul (x, w)  y = Where (c, t, i) }"""
    network = model(text, w=MATRIX, i=np.asarray(-np.inf, np.float32))
    samples = {"x": ROWS, "c": ROWS > 0}
    loose, strict = (
        applied(calibrated(network, samples, tmp_path, max_error=limit)) for limit in (0.1, 1e-4)
    )
    assert 1e-3 < float(loose[1].split()[-1]) < 0.03
    assert strict == ["0 of 1 layers quantised", "relative error of 'y': 0"]


def test_errors_of_what_is_not_finite() -> None:
    errors = Errors()
    nan, inf = np.nan, np.inf
    errors.see("same", np.array([nan, inf, 3.0]), np.array([nan, inf, 4.0]))
    errors.see("lost", np.array([1.0, 2.0]), np.array([nan, 2.0]))
    errors.see("new", np.array([inf, 2.0]), np.array([1.0, 2.0]))
    errors.see("turned", np.array([inf, 2.0]), np.array([-inf, 2.0]))
    assert errors.of() == {"same": 0.25, "lost": inf, "new": inf, "turned": inf}


def test_batches_of_numbers(tmp_path: Path) -> None:
    text = "(float[2,64] x, float s) => (float[2,64] y) { t = MatMul (x, w)  y = Mul (t, s) }"
    samples = {"x": np.stack([ROWS, -ROWS]), "s": np.array([1, 2], np.float32)}
    assert applied(calibrated(model(text, w=MATRIX), samples, tmp_path))[0].startswith("1 of 1")


def uneven(rows: int) -> np.ndarray:
    """Return rows of numbers of which few are large, so that codes of bytes lose the others."""
    data = RNG.standard_normal((2, 3, rows)).astype(np.float32)
    data[..., ::32] *= 30
    data[0, 0, 32:64] = 0
    return data


@pytest.mark.parametrize("opset", [9, 21])
@pytest.mark.parametrize(("rows", "block"), [(256, 32), (250, 64)])
def test_errors_of_weights_in_bytes_hold_where_data_are_bytes(
    rows: int, block: int, opset: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = RNG.standard_normal((rows, 48)).astype(np.float32)
    network = model(f"(float[2,3,{rows}] x) => (float[2,3,48] y) {{ y = MatMul (x, w) }}", w=matrix)
    network.opset_import[0].version = opset
    feeds = {"x": uneven(rows)}
    options = {"precision": "int8-weights", "weight_block": block}
    program = calibrated(network, feeds, tmp_path, **options)
    told, exact = float(applied(program)[1].split()[-1]), run(sambac.compile(network), feeds)["y"]

    def error() -> float:
        off = run(program, feeds)["y"] - exact
        return float(np.linalg.norm(off) / np.linalg.norm(exact))

    assert 0.008 < told < 0.03
    assert error() <= told * 1.1
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    assert error() < told * 0.8
    strict = applied(calibrated(network, feeds, tmp_path, **options, max_error=told * 0.8))
    assert strict[0] == "0 of 1 layers quantised"


def test_a_model_that_came_in_bytes_keeps_its_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset({"u8s8"}))
    coded = in_blocks(RNG.standard_normal((256, 48)).astype(np.float32), bits=8, block=32)
    network = model(
        """(float[2,3,256] x) => (float[2,3,48] y)
        { y = com.microsoft.MatMulNBits <K = 256, N = 48, bits = 8, block_size = 32> (x, c, s) }""",
        c=coded.codes, s=coded.scales,
    )  # fmt: skip
    network.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    feeds = {"x": uneven(256)}
    found = run(sambac.compile(network), feeds)["y"]
    exact = feeds["x"].astype(np.float64) @ coded.matrix()
    assert np.linalg.norm(found - exact) < 1e-5 * np.linalg.norm(exact)


def test_many_channels_have_signed_weights_where_hosts_multiply_them(tmp_path: Path) -> None:
    """Hosts that multiply unsigned and signed bytes compute other products by a detour."""
    filters = RNG.standard_normal((1040, 4, 1, 1)).astype(np.float32)
    network = model("(float[1,4,5,5] x) => (float[1,1040,5,5] y) { y = Conv (x, f) }", f=filters)
    feeds = {"x": RNG.standard_normal((2, 1, 4, 5, 5)).astype(np.float32)}
    program = calibrated(network, feeds, tmp_path)
    assert {stored.requires for stored in program.programs} == {(), ("u8s8",)}


def test_what_falls_back_is_what_outputs_are_off_by(tmp_path: Path) -> None:
    network = model(
        """(float[2,64] x, float[2,64] z) => (float[2,64] y)
        {
            loud = MatMul (x, w)
            coarse = MatMul (z, v)
            share = Constant <value = float {0.001}> ()
            soft = Mul (coarse, share)
            y = Add (loud, soft)
        }""",
        w=MATRIX, v=MATRIX[:, ::-1].copy(),
    )  # fmt: skip
    uneven = np.where(np.arange(64) == 0, np.float32(200), ROWS)  # few codes are for the others
    program = calibrated(network, {"x": ROWS, "z": uneven}, tmp_path, max_error=0.005)
    loud, coarse = map(dict, report(program)["layers"])
    assert coarse["alone"] > loud["alone"]
    assert (loud["precision"], coarse["precision"]) == ("float32", "int8")


def test_between_tokens_nothing_is_transposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = model(
        """(float[1,4,8,8] x) => (float[1,16,4] y, float[1,16,8,8] map)
        <int64[3] rows = {1, 4, 16}, int64[4] pixels = {1, 4, 4, 4}, float[4] scales = {1, 1, 2, 2}>
        {
            a = Conv <strides = [2,2], pads = [1,1,0,0]> (x, patches)
            b = Reshape (a, rows)
            tokens = Transpose <perm = [0,2,1]> (b)
            c = Tanh (tokens)
            d = Transpose <perm = [0,2,1]> (c)
            e = Reshape (d, pixels)
            f = Conv <group = 4, pads = [1,1,1,1]> (e, window, shift)
            g = Reshape (f, rows)
            h = Transpose <perm = [0,2,1]> (g)
            y = Sigmoid (h)
            i = Conv (e, mix)
            map = Resize <mode = "linear"> (i, , scales)
        }""",
        patches=FILTERS, window=FILTERS[:, :1] * 30, shift=np.full(4, 0.2, np.float32),
        mix=np.tile(MATRIX[:16, :32], 1).reshape(16, 32, 1, 1)[:, :4],
    )  # fmt: skip
    program = calibrated(network, {"x": IMAGE - 128}, tmp_path)
    kinds = operators(program)
    # The picture is turned once, and once what is enlarged: the tokens between never are.
    assert (kinds.count("QLinearConv"), kinds.count("Transpose")) == (2, 2)
    feeds = {"x": IMAGE[:, ::-1] - 128}
    exact = run(sambac.compile(network), feeds)

    def off() -> float:
        found = run(program, feeds)
        return max(relative_error(found[name], exact[name]) for name in ("y", "map"))

    assert off() < 0.03
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    assert off() < 0.03


@pytest.mark.parametrize("reader", ["Conv (b, v)", "MaxPool <kernel_shape = [2,2]> (b)"])
def test_short_sums_are_of_float32_before_a_convolution(reader: str, tmp_path: Path) -> None:
    network = model(
        f"(float[1,3,8,8] x) => (float[1,4,m,n] y) {{ a = Conv (x, w) b = Relu (a) y = {reader} }}",
        w=FILTERS[:, :3], v=FILTERS,
    )  # fmt: skip
    kinds = operators(calibrated(network, {"x": IMAGE[:, :3]}, tmp_path))
    assert kinds.count("QLinearConv") == 1
    assert ("Conv" in kinds) == reader.startswith("Conv")


DATA = {
    "rows": np.r_[10, np.ones(31)][:, None],
    "two-bytes": np.r_[12, np.ones(127)],
}
"""How large the rows or columns of data are, and how products of them become near."""
LIMITS = {"rows": 0.02, "two-bytes": 0.014}


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("way", DATA)
def test_data_of_products_become_finer_first(way: str, opset: int, tmp_path: Path) -> None:
    parsed = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        network (float[32,128] x) => (float[32,512] a, float[32,520] b)
        {{
            c = MatMul (x, w)
            a = Add (c, d)
            b = Gemm <transB = 1> (x, v, e)
        }}
        """
    )
    rng = np.random.default_rng(0)
    for name, shape in {"w": (128, 512), "d": (512,), "v": (520, 128), "e": (520,)}.items():
        content = rng.standard_normal(shape).astype(np.float32)
        parsed.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    x = (DATA[way] * rng.standard_normal((2, 32, 128))).astype(np.float32)
    coarse = calibrated(parsed, {"x": x}, tmp_path)
    limit = LIMITS[way]
    program = calibrated(parsed, {"x": x}, tmp_path, max_error=limit)
    assert max(float(line.split()[-1]) for line in applied(coarse)[1:]) > 0.025
    assert max(float(line.split()[-1]) for line in applied(program)[2:]) <= limit
    assert applied(program)[:2] == ["2 of 2 layers quantised", "2 layers with finer data"]
    layers = report(program)["layers"]
    assert {(row["precision"], row["scale"]) for row in layers} == {("int8", way)}
    x[0, -1] = 0
    feeds = {"x": x[0]}
    for name, exact in run(sambac.compile(parsed), feeds).items():
        assert relative_error(run(program, feeds)[name], exact) < 0.03


NAN, INF = np.nan, np.inf


@pytest.mark.parametrize(
    ("factors", "limit", "words"),
    [
        ((1, 1), None, ()),
        ((1, NAN), None, ("'x' has NaN in 1 of 2 batches", "is, of 'y' inf: max_error")),
        ((NAN, NAN), None, ("'x' has NaN in 2 of 2 batches", "no finite number but 0 was seen")),
        ((1, NAN), 0.02, ("'x' has NaN in 1 of 2 batches", "all layers fell back")),
        ((INF, INF), None, ("reads or gives, so that a range is made up",)),
        ((0, 0), None, ("so that a range is made up", "there is nothing but 0 in it")),
        ((1, 0), 1e-6, ("all layers fell back", "more than 1e-06")),
    ],
)
def test_doubts(
    factors: tuple[float, ...], limit: float | None, words: tuple[str, ...], tmp_path: Path
) -> None:
    """What may not be what its user wanted is told, and nothing else."""
    network = model("(float[1,4,8,8] x) => (float[1,4,6,6] y) { y = Conv (x, w) }", w=FILTERS)
    samples = {"x": np.stack([IMAGE * np.float32(factor) for factor in factors])}
    said = " ".join(calibrated(network, samples, tmp_path, max_error=limit).warnings)
    assert all(word in said for word in words)
    assert ("--calibrate" in said or "--max-error" in said) is bool(words)


def test_outputs_that_are_far_off_are_told(tmp_path: Path) -> None:
    """Where one number that counts for nothing is larger than all others."""
    weights, rows = MATRIX.copy(), ROWS.copy()
    weights[0], rows[:, 0] = 0.0, 1e4
    network = model("(float[2,64] x) => (float[2,64] y) { y = MatMul (x, w) }", w=weights)
    far = calibrated(network, {"x": rows}, tmp_path)
    said = " ".join(far.warnings)
    error = relative_error(run(far, {"x": rows})["y"], rows @ weights)
    assert error > 0.5
    assert f"the relative error on what calibrates is, of 'y' {error:.3g}: max_error" in said
    near = calibrated(network, {"x": rows}, tmp_path, max_error=0.02)
    assert relative_error(run(near, {"x": rows})["y"], rows @ weights) < 0.02
    assert "relative error on what calibrates" not in " ".join(near.warnings)
