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


def test_an_opset_without_bfloat16_is_told_with_the_cure(sambac: Callable, model: Path) -> None:
    proto = onnx.load(model)
    proto.opset_import[0].version = 12
    onnx.save(proto, model)
    result = sambac("compile", model, "--precision", "mixed", "-o", model.with_name("out.pef"))
    assert result.code == 2
    assert "opset 12" in result.err
    assert "export the model with opset 13 or later, or compile it in float32" in result.err
