"""Programs whose numbers are those of a device: formats, fidelities and accumulators."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
import torch
from torch import nn

import pef
import sambac
import sambarun
from sambac import CompileError, CompileOptions, NumberRule
from sambac.numerics import FORMATS, SOURCE_A, SOURCE_B, parts, rounded, truncated

BFLOAT16 = FORMATS["Float16_b"]
ROWS, INNER, COLUMNS = 128, 256, 128


def normal(seed: int, *shape: int) -> np.ndarray:
    """Return normal numbers of bfloat16, as float32."""
    drawn = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return rounded(drawn, BFLOAT16)


LEFT, RIGHT = normal(0, ROWS, INNER), normal(1, INNER, COLUMNS)
PRODUCT = (
    '<ir_version: 10, opset_import: ["" : 20]> '
    "g (float[128, 256] x, float[256, 128] w) => (float[128, 128] y) { y = MatMul (x, w) }"
)


def compiled(text: str, rules: Sequence[NumberRule], **options: object) -> pef.Program:
    chosen = CompileOptions(number_rules=tuple(rules), **options)  # type: ignore[arg-type]
    return sambac.compile(ir.from_onnx_text(text), chosen)


def result(text: str, rules: Sequence[NumberRule], **feeds: np.ndarray) -> np.ndarray:
    with sambarun.load(compiled(text, rules)) as executable:
        return next(iter(executable.run(feeds).values()))


def relative_error(rules: Sequence[NumberRule]) -> float:
    found = result(PRODUCT, rules, x=LEFT, w=RIGHT)
    exact = LEFT.astype(np.float64) @ RIGHT.astype(np.float64)
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize(
    ("fidelity", "weights", "expected"),
    [
        ("LoFi", "", 2.62e-2),
        ("HiFi2", "", 4.09e-3),
        ("HiFi3", "", 9.7e-5),
        ("LoFi", "Bfp8_b", 2.08e-2),
        ("HiFi2", "Bfp8_b", 7.4e-3),
        ("HiFi4", "Bfp8_b", 7.3e-3),
        ("HiFi4", "Bfp4_b", 0.112),
        ("HiFi4", "Bfp2_b", 0.472),
    ],
)
def test_a_product_errs_as_on_the_device(fidelity: str, weights: str, expected: float) -> None:
    rule = NumberRule(fidelity=fidelity, operands={1: weights} if weights else "")
    assert relative_error([rule]) == pytest.approx(expected, rel=0.1)


def test_all_passes_leave_bfloat16_as_it_is() -> None:
    assert relative_error([NumberRule(fidelity="HiFi4")]) < 1e-6
    assert relative_error([NumberRule(fidelity="LoFi"), NumberRule(fidelity="full")]) < 1e-6


def test_the_first_pass_shrinks_products() -> None:
    found = result(PRODUCT, [NumberRule(fidelity="LoFi")], x=LEFT, w=RIGHT).astype(np.float64)
    exact = LEFT.astype(np.float64) @ RIGHT.astype(np.float64)
    assert 1 - (found * exact).sum() / (exact * exact).sum() == pytest.approx(0.022, abs=0.002)


@pytest.mark.parametrize("left", ["SrcB", "SrcA"])
def test_which_source_an_operand_is(left: str) -> None:
    rule = NumberRule(fidelity="LoFi", left=left)
    sources = (SOURCE_B, SOURCE_A) if left == "SrcB" else (SOURCE_A, SOURCE_B)
    first, second = (parts(x, source)[0] for x, source in zip((LEFT, RIGHT), sources, strict=True))
    found = result(PRODUCT, [rule], x=LEFT, w=RIGHT)
    np.testing.assert_allclose(found, first.astype(float) @ second, rtol=0, atol=1e-4)


def test_what_wants_nothing_changes_nothing(tmp_path: Path) -> None:
    plain = sambac.compile(ir.from_onnx_text(PRODUCT))
    undone = [NumberRule(factors="Bfp8_b", fidelity="LoFi", accumulate="Float16_b"),
              NumberRule(factors="Float32", fidelity="full", accumulate="Float32")]  # fmt: skip
    for rules in ([], [NumberRule(op_type=("conv",), fidelity="LoFi")], undone):
        program = compiled(PRODUCT, rules)
        assert program.programs == plain.programs
        assert program.sections == plain.sections
        warned = [text for text in program.warnings if "no operator fits the number rule" in text]
        assert len(warned) == (len(rules) == 1)
    paths = tmp_path / "plain.pef", tmp_path / "none.pef"
    plain.save(paths[0])
    compiled(PRODUCT, []).save(paths[1])
    assert paths[0].read_bytes() == paths[1].read_bytes()


NO_EFFECT = {
    "an operand that there is not": NumberRule(op_type=("matmul",), operands={2: "Bfp2_b"}),
    "of every operator": NumberRule(operands={7: "Bfp2_b"}),
    "an operand that is no parameter": NumberRule(op_type=("matmul",), weights={0: "Bfp2_b"}),
    "no parameter": NumberRule(op_type=("relu",), weights="Bfp2_b"),
    "no product": NumberRule(op_type=("relu",), fidelity="LoFi"),
    "no factors": NumberRule(op_type=("relu",), factors="Bfp2_b"),
}


@pytest.mark.parametrize("case", NO_EFFECT)
def test_a_rule_that_says_nothing_of_what_it_fits_is_told(case: str) -> None:
    model = (
        "agraph (float[4,16] x) => (float[4,16] y)\n<float[16,16] w = {"
        + ", ".join("1" * 256)
        + "}>\n{ h = MatMul (x, w)\n y = Relu (h) }"
    )
    text = f'<ir_version: 9, opset_import: ["" : 18]>\n{model}'
    program = compiled(text, [NO_EFFECT[case]])
    (warned,) = program.warnings
    assert warned.endswith("says nothing of what it fits: it has no effect")
    assert "applied" not in json.loads(program.producer.options)
    for rule in (NumberRule(factors="Bfp2_b"), NumberRule(op_type=("matmul",), weights="Bfp2_b")):
        assert compiled(text, [rule]).warnings == ()


@pytest.mark.parametrize("fidelity", ["", "HiFi3"])
@pytest.mark.parametrize("text", ["MatMul (x, w)", "Gemm <transB = 1, alpha = 0.5> (x, w, b)"])
def test_sums_in_a_short_accumulator(text: str, fidelity: str) -> None:
    """Sixteen elements at a time, the last ones filled up with zeros."""
    x, b = normal(2, 5, 40), normal(4, 3)
    matrix = normal(3, 40, 3)
    w = matrix if "MatMul" in text else np.ascontiguousarray(matrix.T)
    shape = "40, 3" if "MatMul" in text else "3, 40"
    model = (
        f'<ir_version: 10, opset_import: ["" : 20]> g (float[5, 40] x, float[{shape}] w, '
        f"float[3] b) => (float[5, 3] y, float[3] z) {{ y = {text} z = Relu (b) }}"
    )
    total = np.zeros((5, 3), np.float32)
    for at in range(0, 40, 16):
        total = rounded(total + x[:, at : at + 16] @ matrix[at : at + 16], BFLOAT16)
    if "Gemm" in text:
        total = rounded(total / 2 + b, BFLOAT16)
    rule = NumberRule(op_type=("MatMul", "Gemm"), accumulate="Float16_b", fidelity=fidelity)
    found = result(model, [rule], x=x, w=w, b=b)
    np.testing.assert_allclose(found, total, rtol=0, atol=0.1)
    assert (found == total).mean() > 0.8
    np.testing.assert_array_equal(found, rounded(found, BFLOAT16))


CONVOLUTION = (
    '<ir_version: 10, opset_import: ["" : 20]> '
    "g (float[1, 18, 6, 6] x, float[20, 18, 3, 3] w, float[20] c) => (float[1, 20, 4, 4] y) "
    "{ y = Conv (x, w, c) }"
)


def convolved(x: np.ndarray, w: np.ndarray, c: np.ndarray | None = None) -> np.ndarray:
    shift = None if c is None else torch.from_numpy(c).double()
    x, w = (torch.from_numpy(np.array(each)).double() for each in (x, w))
    return torch.nn.functional.conv2d(x, w, shift).numpy()


def test_a_convolution_has_blocks_of_channels() -> None:
    x, w, c = normal(5, 1, 18, 6, 6), normal(6, 20, 18, 3, 3), normal(7, 20)
    form = FORMATS["Bfp4_b"]
    expected = convolved(rounded(x, form, axis=1), rounded(w, form, axis=0), c)
    found = result(CONVOLUTION, [NumberRule(factors="Bfp4_b")], x=x, w=w, c=c)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)


def test_a_convolution_has_passes() -> None:
    x, w, c = normal(5, 1, 18, 6, 6), normal(6, 20, 18, 3, 3), normal(7, 20)
    (x1, x2), (w1, w2) = parts(x, SOURCE_B), parts(w, SOURCE_A)
    expected = convolved(x1, w1, c) + convolved(x1, w2) + convolved(x2, w1)
    found = result(CONVOLUTION, [NumberRule(fidelity="HiFi3")], x=x, w=w, c=c)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)
    rule = NumberRule(fidelity="LoFi", accumulate="Float16_b")
    found = result(CONVOLUTION, [rule], x=x, w=w, c=c)
    np.testing.assert_array_equal(found, rounded(found, BFLOAT16))


def test_elementwise_products_and_sums_have_passes() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> g (float[3, 20] x, float[3, 20] w) '
        "=> (float[3, 20] y, float[3, 1] z) <int64[1] a = {1}> "
        "{ y = Mul (x, w) z = ReduceSum <keepdims = 1> (w, a) }"
    )
    rng = np.random.default_rng(9)
    x, w = (rng.standard_normal((3, 20)).astype(np.float32) for _ in range(2))
    (a1, a2), (b1, b2) = parts(x, SOURCE_A), parts(w, SOURCE_B)
    program = compiled(text, [NumberRule(fidelity="HiFi3")])
    with sambarun.load(program) as executable:
        found = executable.run({"x": x, "w": w})
    np.testing.assert_allclose(found["y"], a1 * b1 + a2 * b1 + a1 * b2, rtol=1e-6)
    np.testing.assert_allclose(found["z"], truncated(w, 10).sum(1, keepdims=True), rtol=1e-5)


def test_infinities_stay_so() -> None:
    """The second part of a factor is often 0, and infinity times 0 would be NaN."""
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> g (float[3] x, float[3] w) '
        "=> (float[3] y, float[3] z) <float half = {0.5}> { y = Mul (x, w) z = Mul (x, half) }"
    )
    x = np.array([-np.inf, np.inf, 2], np.float32)
    w = np.array([1, 1.2345, 1], np.float32)
    with sambarun.load(compiled(text, [NumberRule(fidelity="HiFi3")])) as executable:
        found = executable.run({"x": x, "w": w})
    np.testing.assert_array_equal(found["y"], [-np.inf, np.inf, 2])
    np.testing.assert_array_equal(found["z"], [-np.inf, np.inf, 1])


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(40, 24)
        self.second = nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def test_rules_choose_modules_and_parameters() -> None:
    module, x = Layers(), normal(8, 6, 40)
    rules = (
        NumberRule(op_type=("linear",), weights="Bfp4_b"),
        NumberRule(name="second", weights="Float32", output="Float16_b"),
    )
    program = sambac.compile(
        module, CompileOptions(number_rules=rules), inputs=(torch.from_numpy(x),)
    )
    with sambarun.load(program) as executable:
        (found,) = executable.run({program.graphs[0].inputs[0].name: x}).values()
    with torch.no_grad():
        short = rounded(module.first.weight.numpy(), FORMATS["Bfp4_b"], axis=0)
        module.first.weight.copy_(torch.from_numpy(short))
        expected = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-2)
    np.testing.assert_array_equal(found, rounded(found, BFLOAT16))
    assert len(json.loads(program.producer.options)["applied"]) == 2


@pytest.mark.parametrize(
    ("rules", "left", "right"),
    [
        ([NumberRule(weights={1: "Bfp2_b"}), NumberRule(operands="Bfp8_b")], "Bfp8_b", "Bfp8_b"),
        ([NumberRule(operands="Bfp8_b"), NumberRule(operands={1: "Bfp4_b"})], "Bfp8_b", "Bfp4_b"),
        ([NumberRule(operands={0: "Bfp4"}), NumberRule(factors="Float32")], "Float32", "Float32"),
        ([NumberRule(operands="Bfp8", weights="Bfp4", factors="Bfp2")], "Bfp2", "Bfp4"),
    ],
)
def test_later_rules_win_and_then_the_more_special(
    rules: list[NumberRule], left: str, right: str
) -> None:
    text = PRODUCT.replace(", float[256, 128] w", "").replace(
        "{", "<float[256, 128] w = {" + ", ".join(map(str, RIGHT.ravel())) + "}> {", 1
    )
    found = result(text, rules, x=LEFT)
    held = [rounded(x, FORMATS[form]) for x, form in ((LEFT, left), (RIGHT, right))]
    np.testing.assert_allclose(found, held[0].astype(float) @ held[1], rtol=0, atol=1e-3)


def test_inputs_and_parameters_lie_in_formats() -> None:
    module, x = Layers(), normal(8, 6, 40)
    rules = (
        NumberRule(name=r"first\.weight", output="Bfp4_b"),
        NumberRule(name="x", output="Bfp2_b", rounding="truncate"),
    )
    options = CompileOptions(number_rules=rules)
    program = sambac.compile(module, options, inputs={"x": torch.from_numpy(x)})
    assert not program.warnings
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x}).values()
    with torch.no_grad():
        short = rounded(module.first.weight.numpy(), FORMATS["Bfp4_b"])
        module.first.weight.copy_(torch.from_numpy(short))
        held = rounded(x, FORMATS["Bfp2_b"], "truncate")
        expected = module(torch.from_numpy(held)).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_results_have_formats_too() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> g (float[3, 20] x) => (float[3, 20] y, '
        "float[3, 20] z) { y = Exp (x) z = Neg (y) }"
    )
    x, form = normal(3, 3, 20), FORMATS["Bfp8_b"]
    program = compiled(text, [NumberRule(op_type=("exp",), output="Bfp8_b", rounding="truncate")])
    with sambarun.load(program) as executable:
        found = executable.run({"x": x})
    np.testing.assert_array_equal(found["z"], -found["y"])
    np.testing.assert_array_equal(found["y"], rounded(found["y"], form, "truncate"))
    assert np.abs(found["y"] - np.exp(x)).max() > 1e-3


def test_sizes_may_be_computed() -> None:
    """As exporters write a reshape: the new shape is made of the old one."""
    text = (
        '<ir_version: 10, opset_import: ["" : 17]> g (float[2, 3, 20] x) => (float[6, 20] y) '
        "<int64[1] last = {2}, int64[1] rest = {-1}, int64[1] a = {0}> "
        "{ s = Shape (x) n = Gather <axis = 0> (s, last) t = Concat <axis = 0> (rest, n) "
        "r = Reshape (x, t) y = Relu (r) }"
    )
    x = normal(1, 2, 3, 20)
    found = result(text, [NumberRule(op_type=("relu",), operands="Bfp4")], x=x)
    expected = np.maximum(rounded(x.reshape(6, 20), FORMATS["Bfp4"]), 0)
    np.testing.assert_array_equal(found, expected)


def test_a_kernel_with_products_inside_has_no_fidelity() -> None:
    text = (
        '<ir_version: 10, opset_import: ["" : 20]> g (float[3, 1, 4] x, float[1, 20, 4] w, '
        "float[1, 20, 5] r) => (float[3, 1, 1, 5] y) { y = LSTM <hidden_size = 5> (x, w, r) }"
    )
    lofi = NumberRule(fidelity="LoFi")
    with pytest.raises(CompileError, match=r"LSTM.*knows no fidelity.*op_type: LSTM, fidelity: f"):
        compiled(text, [lofi])
    compiled(text, [lofi, NumberRule(op_type=("LSTM",), fidelity="full")])


def test_operators_that_there_are_not() -> None:
    with pytest.raises(CompileError, match=r"no known operator: 'matmull' \(did you mean 'MatMul'"):
        compiled(PRODUCT, [NumberRule(op_type=("matmull",), fidelity="LoFi")])


def lofi(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    return parts(left, SOURCE_B)[0] @ parts(right, SOURCE_A)[0]


ATTENTION = (
    '<ir_version: 10, opset_import: ["" : 23]> g (float[1, 2, 20, 16] q, float[1, 2, 24, 16] k, '
    "float[1, 2, 24, 16] v) => (float[1, 2, 20, 16] y) { y = Attention (q, k, v) }"
)


def test_attention_is_made_of_its_products() -> None:
    q, k, v = (normal(seed, 1, 2, size, 16) for seed, size in ((1, 20), (2, 24), (3, 24)))
    root = parts(np.full(1, 16**-0.25, np.float32), SOURCE_B)[0]
    queries, keys = (parts(x, SOURCE_A)[0] * root for x in (q, k))
    scores = lofi(queries, np.swapaxes(keys, 2, 3))
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    expected = lofi(powers / powers.sum(-1, keepdims=True), v)
    rule = NumberRule(op_type=("Attention",), fidelity="LoFi")
    found = result(ATTENTION, [rule], q=q, k=k, v=v)
    exact = result(ATTENTION, [], q=q, k=k, v=v)
    assert np.abs(found - expected).max() < np.abs(exact - expected).max() / 10


def test_attention_is_no_matrix_product() -> None:
    plain = compiled(ATTENTION, [])
    assert compiled(ATTENTION, [NumberRule(op_type=("matmul",), fidelity="LoFi")]).sections == (
        plain.sections
    )
