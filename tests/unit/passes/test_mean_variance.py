"""Normalisation by mean and deviation, also where nothing deviates."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from near import assert_near

import sambac
import sambarun
from sambac.options import Level


def _text(dtype: str, opset: int, axes: str, shape: str) -> str:
    return (
        f'<ir_version: 7, opset_import: ["": {opset}]> g ({dtype}[{shape}] x) => (y) '
        f"{{ y = MeanVarianceNormalization {axes} (x) }}"
    )


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("opset", [9, 13, 21])
@pytest.mark.parametrize("shape", ["2, 3, 4, 4", "n, 3, h, w"])
@pytest.mark.parametrize(
    ("spelled", "axes"), [("", (0, 2, 3)), ("<axes = [2, 3]>", (2, 3)), ("<axes = [-1]>", (-1,))]
)
def test_equal_numbers_become_zero(
    spelled: str, axes: tuple[int, ...], shape: str, opset: int, level: Level
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(np.float32)
    x[:, 1] = 0.5
    model = onnx.parser.parse_model(_text("float", opset, spelled, shape))
    program = sambac.compile(model, sambac.CompileOptions(level=level))
    with sambarun.load(program) as executable:
        found = executable.run({"x": x})["y"]
    centred = x.astype(np.float64) - x.astype(np.float64).mean(axes, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axes, keepdims=True))
    assert_near(found, centred / (deviation + 1e-9))
    assert not found[:, 1].any()


def test_equal_numbers_of_half_precision() -> None:
    model = onnx.parser.parse_model(_text("float16", 13, "", "2, 3, 4, 4"))
    with sambarun.load(sambac.compile(model)) as executable:
        assert not executable.run({"x": np.ones((2, 3, 4, 4), np.float16)})["y"].any()
