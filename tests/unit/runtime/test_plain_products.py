"""What other providers are given in the place of products that transpose batches."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import sambarun
from sambarun.sessions import provider
from sambarun.sessions.plain_products import with_plain_products
from sambarun.sessions.provider import CPU, Provider

SHAPES = {"a": (5, 1, 6, 8), "b": (5, 1, 6, 8), "c": (1, 6, 5, 8), "d": (1, 6, 8, 5)}
FEEDS = {
    name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for name, shape in SHAPES.items()
}


def network(product: str) -> onnx.ModelProto:
    inputs = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in SHAPES.items())
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 20, "com.microsoft" : 1]>'
        f"network ({inputs}) => (float[1,6,M,N] y) {{ {product} }}"
    )


@pytest.mark.parametrize(
    "product",
    [
        "y = com.microsoft.FusedMatMul <transBatchA = 1> (a, d)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transB = 1, alpha = 0.5> (a, c)",
        "y = com.microsoft.FusedMatMul <transBatchB = 1> (d, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transBatchB = 1, transB = 1> (a, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 1, transA = 1, transBatchB = 1> (a, b)",
        "y = com.microsoft.FusedMatMul <transBatchA = 0, transBatchB = 0> (c, d)",
        """t = Constant <value = bool {1}> ()
           y = If (t) <
               then_branch = one () => (float[1,6,M,N] p)
                   { p = com.microsoft.FusedMatMul <transBatchA = 1> (a, d) },
               else_branch = two () => (float[1,6,M,N] q) { q = MatMul (c, d) }
           >""",
    ],
)
def test_transposes_stand_for_transposed_batches(product: str) -> None:
    model = network(product)
    plain = with_plain_products(model.SerializeToString())
    exact, found = (
        onnxruntime.InferenceSession(each, providers=[CPU.name]).run(None, FEEDS)[0]
        for each in (model.SerializeToString(), plain)
    )
    np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)
    left = onnx.printer.to_text(onnx.load_from_string(plain))
    assert "transBatchA: int = 1" not in left
    assert "transBatchB: int = 1" not in left


def test_what_a_provider_fails_to_make_ready_stays_on_the_processor(
    monkeypatch: pytest.MonkeyPatch, spec_type: Any, sec_type: Any, value_type: Any
) -> None:
    class Failing(Provider):
        is_processor = False

        def open(self, model: bytes, options: Any) -> Any:
            if b"Relu" in model:
                raise RuntimeError("Exception while Reading network: no such shape")
            return self._open(model, options)

    monkeypatch.setattr(provider, "_WITHOUT_OPTIONS", ())
    node = helper.make_node
    program = spec_type(
        sections=[
            sec_type([node("Neg", ["x"], ["a"])], ["x"], ["a"]),
            sec_type([node("Relu", ["a"], ["y"])], ["a"], ["y"]),
        ],
        values={name: value_type() for name in "xay"},
        inputs=["x"],
        outputs=["y"],
    ).program()
    with sambarun.load(program, provider=Failing(CPU.name, {"a": "1"})) as executable:
        found = executable.run({"x": np.float32([1, -2, 3, -4])})["y"]
    np.testing.assert_array_equal(found, np.float32([0, 2, 0, 4]))
