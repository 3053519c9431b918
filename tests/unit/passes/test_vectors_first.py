"""Matrices times vectors behind transposes, wherever onnxruntime moves these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import sambac
import sambarun

_BETWEEN = [
    "b = Relu (a)",
    "b = Add (a, v)",
    "b = Clip (a)",
    "b = Concat <axis = 0> (a, a)",
    "c = Neg (a) b = Relu (c)",
]


@pytest.mark.parametrize("level", ["O0", "O3"])
@pytest.mark.parametrize("opset", [12, 18])
@pytest.mark.parametrize("vector", ["float[4]", "float[n]", "float[4, 1]"])
@pytest.mark.parametrize("between", _BETWEEN)
def test_a_vector_is_a_column(between: str, vector: str, opset: int, level: str) -> None:
    # The second Transpose has onnxruntime move the first one, to both products.
    given = "v = Squeeze (k)" if vector == "float[4, 1]" else "v = Identity (k)"
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": {opset}]>
        g (float[4, 4] x, {vector} k) => (float[] y, float[] z) {{
            {given}
            a = Transpose <perm = [1, 0]> (x)
            {between}
            z = Transpose <perm = [1, 0]> (b)
            y = MatMul (b, v)
        }}
    """)
    rng = np.random.default_rng(0)
    shape = (4, 1) if vector == "float[4, 1]" else (4,)
    feeds = {"x": rng.standard_normal((4, 4)), "k": rng.standard_normal(shape)}
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    expected = ReferenceEvaluator(model).run(None, feeds)
    with sambarun.load(sambac.compile(model, sambac.CompileOptions(level=level))) as executable:
        found = executable.run(feeds)
    for value, wanted in zip(found.values(), expected, strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-5, atol=1e-6)
