"""Products with weights of few bits add what is added for each column."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import sambac
import sambarun
from sambac.options import Precision

PRODUCTS = {
    "MatMul, then Add": "a = MatMul (x, w)  y = Add (a, c)",
    "Add before the product": "a = MatMul (x, w)  y = Add (c, a)",
    "Gemm": "y = Gemm (x, w, c)",
    "Gemm, turned": "y = Gemm <transB = 1> (x, v, c)",
}
KEPT = {
    "for each row": "a = MatMul (x, w)  y = Add (a, r)",
    "given at run time": "a = MatMul (x, w)  y = Add (a, d)",
    "read before it": "a = MatMul (x, w)  b = Add (a, c)  y = Mul (a, b)",
}
rng = np.random.default_rng(6)
WEIGHTS = {
    "w": rng.standard_normal((64, 48)).astype(np.float32),
    "c": 10 * rng.standard_normal(48).astype(np.float32),
}


def network(body: str, rows: int) -> onnx.ModelProto:
    more = ", float[48] d" if "d)" in body else ""
    model = onnx.parser.parse_model(
        f"""<ir_version: 8, opset_import: ["" : 18]>
        network (float[{rows},64] x{more}) => (float[{rows},48] y) {{ {body} }}"""
    )
    others = {"v": WEIGHTS["w"].T.copy(), "r": 10 * np.ones((rows, 1), np.float32)}
    for name, content in {**WEIGHTS, **others}.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(content, name))
    return model


def found(
    body: str, rows: int, precision: Precision, x: np.ndarray, d: np.ndarray
) -> tuple[list[str], np.ndarray]:
    program = sambac.compile(network(body, rows), sambac.CompileOptions(precision=precision))
    groups = (group for section in program.sections for group in section.groups)
    kinds = [operator.op_type for group in groups for operator in group.operators]
    with sambarun.load(program, threads=1) as executable:
        return kinds, executable.run({"x": x, "d": d} if "d)" in body else {"x": x})["y"]


@pytest.mark.parametrize("precision", ["int4-weights", "int8-weights"])
@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("body", PRODUCTS.values(), ids=PRODUCTS)
def test_a_bias_is_added_by_the_product(body: str, rows: int, precision: Precision) -> None:
    x, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((rows, 64), (48,)))
    kinds, y = found(body, rows, precision, x, d)
    assert kinds == ["MatMulNBits"]
    _, plain = found("y = MatMul (x, w)", rows, precision, x, d)
    np.testing.assert_allclose(y, plain + WEIGHTS["c"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_is_no_bias_is_added_behind(body: str) -> None:
    x, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 64), (48,)))
    kinds, y = found(body, 7, "int8-weights", x, d)
    assert {"MatMulNBits", "Add"} <= {*kinds}
    product = x.astype(np.float64) @ WEIGHTS["w"]
    exact = {"r": product + 10, "d": product + d, "y": product * (product + WEIGHTS["c"])}
    wanted = exact["y" if "Mul (a" in body else "r" if "r)" in body else "d"]
    assert np.linalg.norm(y - wanted) < 0.02 * np.linalg.norm(wanted)
