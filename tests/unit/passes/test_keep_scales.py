"""Factors around products of matrices whose product is no number stay apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(("a", "b", "size"), [("1e25", "1e25", 1e-35), ("1e-25", "1e-25", 1e35)])
@pytest.mark.parametrize(
    "body",
    [
        "t = Mul (x, a) u = MatMul (t, w) y = Mul (u, b)",
        "u = MatMul (x, w) t = Mul (a, u) y = Mul (t, b)",
        "s = Mul (x, a) t = Mul (s, b) y = MatMul (t, w)",
        "v = Transpose <perm = [1, 0]> (w) z = Mul (v, b) t = Mul (x, a) y = MatMul (t, z)",
        "c = Reciprocal (a) d = Reciprocal (b) t = Div (x, c) u = MatMul (t, w) y = Div (u, d)",
    ],
)
def test_factors_stay_apart(body: str, a: str, b: str, size: float, level: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]> g (float[2, 3] x) => (float[2, 3] y)
        <float a = {{{a}}}, float b = {{{b}}},
         float[3, 3] w = {{1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0}}> {{ {body} }}
    """)
    x = (np.array([[1, -2, 3], [0, 5, -6]]) * size).astype(np.float32)
    expected = x.astype(np.float64) * float(a) * float(b)
    options = sambac.CompileOptions(level=level)
    with sambarun.load(sambac.compile(model, options)) as executable:
        found = executable.run({"x": x})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize(("factor", "size"), [("1e25", 1e-30), ("1e-25", 1e25)])
def test_one_factor_stays_where_products_vanish_or_overflow_without_it(
    factor: str, size: float, level: str
) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]> g (float[2, 2] x, float[2, 2] w) => (float[2, 2] y)
        <float a = {{{factor}}}> {{ t = Mul (x, a) y = MatMul (t, w) }}
    """)
    x = (np.array([[1, -2], [3, 5]]) * size).astype(np.float32)
    w = (np.array([[1, 4], [2, -1]]) * size).astype(np.float32)
    expected = x.astype(np.float64) * float(factor) @ w.astype(np.float64)
    options = sambac.CompileOptions(level=level)
    with sambarun.load(sambac.compile(model, options)) as executable:
        found = executable.run({"x": x, "w": w})["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
