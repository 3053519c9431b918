"""`sambac compile --precision`: in which digits the program that it writes computes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

import pef
import sambarun
from sambac.numerics import FORMATS, rounded


def _rounded(x: np.ndarray) -> np.ndarray:
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def _as_it_is(x: np.ndarray) -> np.ndarray:
    return x


def _layer(
    x: np.ndarray,
    weight: np.ndarray,
    factors: Callable[[np.ndarray], np.ndarray],
    others: Callable[[np.ndarray], np.ndarray],
) -> np.ndarray:
    """Return what the model computes; the results of operators go through `others`."""
    hidden = others(np.maximum(others(factors(x) @ factors(weight)), 0))
    powers = np.exp(hidden - hidden.max(-1, keepdims=True))
    return others(powers / powers.sum(-1, keepdims=True))


@pytest.mark.parametrize(
    ("precision", "factors", "others"),
    [
        ("float32", _as_it_is, _as_it_is),
        ("mixed", _rounded, _as_it_is),
        ("bfloat16", _rounded, _rounded),
    ],
)
def test_numbers_are_rounded_where_it_says(
    sambac: Callable,
    model: Path,
    weight: np.ndarray,
    precision: str,
    factors: Callable[[np.ndarray], np.ndarray],
    others: Callable[[np.ndarray], np.ndarray],
) -> None:
    target = model.with_name("out.pef")
    assert sambac("compile", model, "--precision", precision, "-o", target).code == 0
    assert json.loads(pef.verify(target).producer.options)["precision"] == precision
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    (found,) = sambarun.load(target).run({"x": x}).values()
    np.testing.assert_allclose(found, _layer(x, weight, factors, others), rtol=1e-6)


def test_without_it_nothing_is_rounded(sambac: Callable, model: Path) -> None:
    plain, named = model.with_name("plain.pef"), model.with_name("named.pef")
    assert sambac("compile", model, "-o", plain).code == 0
    assert sambac("compile", model, "--precision", "float32", "-o", named).code == 0
    assert plain.read_bytes() == named.read_bytes()


def test_other_words_are_refused(sambac: Callable, model: Path) -> None:
    result = sambac("compile", model, "--precision", "float16")
    assert result.code == 2
    assert "'float16' is not one of 'float32', 'mixed', 'bfloat16'" in result.err
    assert "(did you mean 'Float16'?)." in result.err


def test_an_opset_without_bfloat16_is_raised(sambac: Callable, model: Path) -> None:
    new, old = model.with_name("new.pef"), model.with_name("old.pef")
    assert sambac("compile", model, "--precision", "mixed", "-o", new).code == 0
    proto = onnx.load(model)
    proto.opset_import[0].version = 8
    onnx.save(proto, model)
    assert sambac("compile", model, "--precision", "mixed", "-o", old).code == 0
    x = {"x": np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)}
    first, second = (next(iter(sambarun.load(path).run(x).values())) for path in (new, old))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("form", ["Bfp8_b", "Bfp4", "Lf8", "TF32"])
def test_a_format_is_that_of_what_products_multiply(
    sambac: Callable, model: Path, weight: np.ndarray, form: str
) -> None:
    target = model.with_name("out.pef")
    assert sambac("compile", model, "--precision", form, "-o", target).code == 0
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    (found,) = sambarun.load(target).run({"x": x}).values()

    def factors(array: np.ndarray) -> np.ndarray:
        return rounded(array, FORMATS[form])

    np.testing.assert_allclose(found, _layer(x, weight, factors, _as_it_is), rtol=1e-5)
    assert f"MatMul: factors {form}" in target.with_name("out.pef.log").read_text()


def test_rules_of_a_file_win_over_the_precision(
    sambac: Callable, model: Path, weight: np.ndarray
) -> None:
    rules, target = model.with_name("rules.yaml"), model.with_name("out.pef")
    rules.write_text("- op_type: matmul\n  factors: Bfp4_b\n  rounding: truncate\n")
    done = sambac("compile", model, "--precision", "mixed", "--number-rules", rules, "-o", target)
    assert done.code == 0
    x = np.random.default_rng(1).standard_normal((2, 4)).astype(np.float32)
    (found,) = sambarun.load(target).run({"x": x}).values()

    def factors(array: np.ndarray) -> np.ndarray:
        return rounded(array, FORMATS["Bfp4_b"], "truncate")

    np.testing.assert_allclose(found, _layer(x, weight, factors, _as_it_is), rtol=1e-5)
    record = json.loads(pef.verify(target).producer.options)
    assert record["number_rules"] == [
        {"op_type": ["matmul"], "factors": "Bfp4_b", "rounding": "truncate"}
    ]


def test_rules_that_are_wrong_are_told(sambac: Callable, model: Path) -> None:
    rules = model.with_name("rules.yaml")
    rules.write_text("- op_type: matmul\n  fidelity: Lofi\n")
    result = sambac("compile", model, "--number-rules", rules)
    assert result.code == 2
    assert "rule 1: fidelity is 'Lofi' (did you mean 'LoFi'?)" in result.err
    rules.write_text("- op_type: conv\n  fidelity: LoFi\n")
    result = sambac("compile", model, "--number-rules", rules, "-o", model.with_name("out.pef"))
    assert result.code == 0
    assert (
        "no operator fits the number rule {'op_type': ['conv'], 'fidelity': 'LoFi'}" in result.err
    )


def test_layers_in_few_bits_are_listed(sambac: Callable, tmp_path: Path) -> None:
    header = '<ir_version: 10, opset_import: ["" : 21]>'
    graph = "g (float[2,64] x) => (float[2,8] y) {y = MatMul(x, w)}"
    proto = onnx.parser.parse_model(f"{header} {graph}")
    weights = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    model, target, samples = (tmp_path / name for name in ("m.onnx", "m.pef", "samples.npz"))
    onnx.save(proto, model)
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    np.savez(samples, x=x)
    words = ("--precision", "int8", "--calibrate", samples, "--max-error", "0.5")
    assert sambac("compile", model, *words, "-o", target).code == 0
    shown = sambac("inspect", target).out
    assert "Layers (1; shares of arithmetic and time, relative errors)" in shown
    assert "MatMul  int8       dynamic" in shown
    assert "1 of 1 layers quantised" in shown
    (found,) = sambarun.load(target).run({"x": x[:2]}).values()
    np.testing.assert_allclose(found, x[:2] @ weights, atol=0.5)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--precision", "int8", "--train"), "for inference"),
        (("--precision", "int4-weights", "--weight-block", "16"), "choose 32, 64 or 128"),
        (("--calibrate", "samples.npz"), "drop it"),
        (("--precision", "int8", "--observer", "min"), "'min' is not one of 'minmax'"),
        (("--precision", "int8", "--calibrate", "absent.npz"), "absent.npz"),
    ],
)
def test_options_of_few_bits_that_are_wrong(
    sambac: Callable, model: Path, words: tuple[str, ...], said: str
) -> None:
    result = sambac("compile", model, *words)
    assert result.code == 2
    assert said in " ".join(result.err.split())
