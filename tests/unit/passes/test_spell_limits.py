"""Clips whose limits cross, and clips of what is rectified, are computed as they are written."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun

_X = np.array([-3, -1, -0.5, 0, 0.5, 1, 3, 7])


@pytest.mark.parametrize(("low", "high"), [(2, 1), (1, -1), (-2, -1), (-4, 6), (0.5, 2)])
@pytest.mark.parametrize("rectified", [False, True])
@pytest.mark.parametrize("opset", [6, 10])
def test_limits_that_are_attributes(opset: int, rectified: bool, low: float, high: float) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 7, opset_import: ["": {opset}]> g (float[8] x) => (float[8] y) {{
            t = {"Relu" if rectified else "Neg"} (x)
            y = Clip <min = {float(low)}, max = {float(high)}> (t)
        }}
    """)
    _require(model, _X.astype(np.float32), rectified, (low, high))


@pytest.mark.parametrize("dtype", ["float", "double", "int32", "int8"])
@pytest.mark.parametrize(("low", "high"), [(2, 1), (-2, -1), (None, -1), (-4, 6), (1, None)])
@pytest.mark.parametrize("rectified", [False, True])
def test_limits_that_are_inputs(
    dtype: str, rectified: bool, low: float | None, high: float | None
) -> None:
    constants = {"low": low, "high": high}
    given = ", ".join(f"{dtype} {name} = {{{x}}}" for name, x in constants.items() if x is not None)
    names = ", ".join("" if x is None else name for name, x in constants.items())
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]> g ({dtype}[8] x) => ({dtype}[8] y) <{given}> {{
            t = {"Relu" if rectified else "Neg"} (x)
            y = Clip (t, {names.removesuffix(", ")})
        }}
    """)
    numpy = onnx.helper.tensor_dtype_to_np_dtype(model.graph.input[0].type.tensor_type.elem_type)
    _require(model, _X.astype(numpy), rectified, (low, high))


def _require(
    model: onnx.ModelProto, x: np.ndarray, rectified: bool, limits: tuple[float | None, ...]
) -> None:
    wide = x.astype(np.float64)
    low, high = limits
    expected = np.maximum(wide, 0) if rectified else -wide
    expected = np.maximum(expected, -np.inf if low is None else low)
    expected = np.minimum(expected, np.inf if high is None else high)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x})["y"]
    assert found.dtype == x.dtype
    np.testing.assert_array_equal(found, expected)
