"""Programs in whole numbers of few bits: near float32, smaller, and modelled as what they are."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import onnx.parser
import pytest

import pef
import sambac
import sambarun
from benchmarks.models.decoding import decoder, decoder_inputs
from benchmarks.models.transformers import Shape, bert, gpt, token_inputs
from sambac.options import Precision
from sambarun.device import image

SMALL = Shape(layers=2, hidden=128, heads=4, length=16, vocabulary=500)
MODELS = {
    "bert": lambda: (bert(SMALL), token_inputs(bert(SMALL), SMALL)),
    "gpt": lambda: (gpt(SMALL), token_inputs(gpt(SMALL), SMALL)),
    "decoder": lambda: (decoder(SMALL), decoder_inputs(decoder(SMALL))),
}
# Random weights: a trained network, whose weights are less alike, loses less.
TOLERANCE: Mapping[Precision, float] = {"int8": 0.05, "int8-weights": 0.04, "int4-weights": 0.35}
Feeds = Mapping[str, np.ndarray]


def run(program: pef.Program, feeds: Feeds) -> dict[str, np.ndarray]:
    with sambarun.load(program, threads=1) as executable:
        return {name: np.array(value) for name, value in executable.run(dict(feeds)).items()}


def error(found: Mapping[str, np.ndarray], exact: Mapping[str, np.ndarray]) -> float:
    return max(
        float(np.linalg.norm(found[name] - exact[name]) / np.linalg.norm(exact[name]))
        for name in exact
    )


def compiled(model: onnx.ModelProto, precision: Precision, **options: object) -> pef.Program:
    chosen = sambac.CompileOptions(precision=precision, **options)  # type: ignore[arg-type]
    return sambac.compile(model, chosen)


def layers(program: pef.Program) -> list[dict[str, object]]:
    from pef.report import report

    return [dict(row) for row in report(program)["layers"]]


def types(program: pef.Program) -> set[str]:
    return {
        operator.op_type
        for section in program.sections
        for group in section.groups
        for operator in group.operators
    }


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", MODELS)
def test_results_are_near_those_of_float32(
    name: str, precision: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, feeds = MODELS[name]()
    exact = run(sambac.compile(model), feeds)
    program = compiled(model, precision)
    here = run(program, feeds)
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    portable = run(program, feeds)
    assert 1e-4 < error(here, exact) < TOLERANCE[precision]
    assert error(portable, exact) < TOLERANCE[precision]
    # Both round weights alike; the one for this host rounds data of 8-bit weights, too.
    assert error(here, portable) < (0.03 if precision == "int8-weights" else 1e-4)


@pytest.mark.parametrize(
    ("precision", "features"),
    [("int8", {(), ("u8s8",)}), ("int8-weights", {(), ("u8s8",)}), ("int4-weights", {()})],
)
def test_hosts_that_multiply_bytes_have_a_program_of_their_own(
    precision: Precision, features: set[tuple[str, ...]]
) -> None:
    model, _ = MODELS["gpt"]()
    program = compiled(model, precision)
    assert {stored.requires for stored in program.programs} == features
    assert all(not program.programs[s.variants[-1].program].requires for s in program.sections)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_levels_give_the_same(level: str) -> None:
    model, feeds = MODELS["gpt"]()
    whole = run(compiled(model, "int8"), feeds)
    assert error(run(compiled(model, "int8", level=level), feeds), whole) < 1e-4


@pytest.mark.parametrize(("precision", "bits"), [("int4-weights", 4), ("int8-weights", 8)])
@pytest.mark.parametrize("block", [32, 64, 128])
def test_blocks_make_files_smaller(precision: Precision, bits: int, block: int) -> None:
    model, _ = MODELS["decoder"]()
    plain, small = sambac.compile(model), compiled(model, precision, weight_block=block)

    def weights(program: pef.Program) -> int:
        return sum(section.estimate.bytes_weights for section in program.sections)

    table = 4 * SMALL.vocabulary * SMALL.hidden  # rows are picked of it: it stays float32
    share = (bits + 32 / block) / 32
    products = weights(plain) - table
    heads = table * share  # the head is the table again, in few bits
    assert weights(small) == pytest.approx(table + products * share + heads, rel=0.05)
    assert small.sections[0].estimate.flops == pytest.approx(
        plain.sections[0].estimate.flops, rel=0.01
    )


def test_the_log_lists_layers() -> None:
    model, _ = MODELS["gpt"]()
    rows = layers(compiled(model, "int4-weights"))  # in blocks of the size that is told
    assert "128; None: 64)" in (sambac.CompileOptions.__doc__ or "")
    assert len(rows) == 4 * SMALL.layers + 1
    assert rows[-1]["layer"] == "/lm_head/MatMul"
    assert {(row["precision"], row["scale"]) for row in rows} == {("int4-weights", "blocks-of-64")}
    assert all(0.05 < float(str(row["weights"])) < 0.15 for row in rows)
    assert 0.8 < sum(float(str(row["share"])) for row in rows) < 1


def test_data_that_several_products_read_are_quantised_once() -> None:
    model, _ = MODELS["bert"]()
    program = compiled(model, "int8", level="O0")
    names = [
        operator.op_type
        for section in program.sections
        for group in section.groups
        for operator in group.operators
    ]
    assert names.count("MatMulIntegerToFloat") == 6 * SMALL.layers + 1
    assert names.count("DynamicQuantizeLinear") == 4 * SMALL.layers + 1


def test_equal_models_give_equal_files() -> None:
    model, _ = MODELS["bert"]()
    first, second = (compiled(model, "int8") for _ in range(2))
    assert first.producer == second.producer
    assert [part.size for part in first.segments] == [part.size for part in second.segments]


PRODUCTS = """
<ir_version: 10, opset_import: ["" : 21]>
products (float[3,40] x) => (float[3,2] plain, float[3,3] turned, float[3,2] scaled, float[2] row)
<float[40,2] w, float[3,40] v, float[3] c, float[40] one>
{
    plain = MatMul (x, w)
    turned = Gemm <transB = 1> (x, v, c)
    scaled = Gemm <alpha = 0.5> (x, w)
    row = MatMul (one, w)
}
"""


def products() -> tuple[onnx.ModelProto, Feeds]:
    model = onnx.parser.parse_model(PRODUCTS)
    rng = np.random.default_rng(0)
    model.graph.initializer.clear()
    for name, shape in {"w": (40, 2), "v": (3, 40), "c": (3,), "one": (40,)}.items():
        content = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return model, {"x": rng.standard_normal((3, 40)).astype(np.float32)}


@pytest.mark.parametrize("precision", TOLERANCE)
def test_forms_of_products(precision: Precision) -> None:
    model, feeds = products()
    found = compiled(model, precision)
    assert [row["operator"] for row in layers(found)] == ["MatMul", "Gemm"]
    results, exact = run(found, feeds), run(sambac.compile(model), feeds)
    np.testing.assert_array_equal(results["row"], exact["row"])
    np.testing.assert_allclose(results["scaled"], exact["scaled"], rtol=1e-6)
    assert error(results, exact) < TOLERANCE[precision]


CHAIN = """
<ir_version: 10, opset_import: ["" : 21]>
chain (float[3,40] x) => (float[3,40] y) <float[40,40] w, float[40] c>
{
    a = MatMul (x, w)
    b = MatMul (a, w)
    d = Add (b, c)
    e = Gemm (d, w, c)
    f = Gemm (x, w, e)
    y = Gemm (f, w, a)
}
"""


@pytest.mark.parametrize("precision", TOLERANCE)
def test_products_that_read_each_other(precision: Precision) -> None:
    model = onnx.parser.parse_model(CHAIN)
    rng = np.random.default_rng(0)
    model.graph.initializer.clear()
    for name, shape in {"w": (40, 40), "c": (40,)}.items():
        content = (rng.standard_normal(shape) / 6).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    feeds = {"x": rng.standard_normal((3, 40)).astype(np.float32)}
    found = compiled(model, precision)
    assert len(layers(found)) == 5
    assert error(run(found, feeds), run(sambac.compile(model), feeds)) < 2 * TOLERANCE[precision]


def test_without_layers_there_is_a_warning() -> None:
    text = '<ir_version: 10, opset_import: ["" : 21]> g (float[3] x) => (float[3] y) {y = Neg(x)}'
    program = compiled(onnx.parser.parse_model(text), "int4-weights")
    assert "no layer to quantise" in " ".join(program.warnings)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"precision": "int8", "train": True}, "for inference"),
        ({"precision": "int4-weights", "weight_block": 48}, "choose 32, 64 or 128"),
        ({"weight_block": 32}, "drop it"),
        (
            {"precision": "int8", "number_rules": (sambac.NumberRule(factors="Bfp8_b"),)},
            "drop one of them",
        ),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(sambac.CompileError, match=words):
        sambac.CompileOptions(**options)  # type: ignore[arg-type]
