"""Shares of attention whose mask hides whole rows: the same numbers by one operator."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.reduce_strength import ReduceStrength
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode


def _reduced(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    for step in (InferShapes(), ReduceStrength(), EliminateDeadCode()):
        step(made)
    return ir.to_proto(made)


_SHARES = "s = Softmax<axis = -1>(x) n = IsNaN(s)"


def _choice(body: str, zero: str = "float z = {0}") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[4, 37] x, float[4, 37] w) => '
        f"(float[4, 37] y) <{zero}> {{ {body} }}"
    )


def test_shares_of_hidden_rows_are_zero() -> None:
    model = _choice(f"{_SHARES} y = Where(n, z, s)")
    reduced = _reduced(model)
    assert [node.op_type for node in reduced.graph.node] == ["Softmax", "ThresholdedRelu"]
    x = np.random.default_rng(3).standard_normal((4, 37)).astype(np.float32)
    x[0], x[1, 3], x[2, 5:] = -np.inf, np.nan, (*[-np.inf] * 20, *[-120.0] * 12)
    x[3, 8] = np.inf
    found, wanted = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": x, "w": x})[0]
        for each in (reduced, model)
    )
    np.testing.assert_array_equal(found.view(np.uint32), wanted.view(np.uint32))
    assert not found[[0, 1, 3]].any()


@pytest.mark.parametrize(
    ("body", "zero"),
    [
        (f"{_SHARES} y = Where(n, z, s)", "float z = {1}"),
        (f"{_SHARES} y = Where(n, z, s)", "float z = {-0.0}"),
        (f"{_SHARES} y = Where(n, s, z)", "float z = {0}"),
        ("n = IsNaN(x) y = Where(n, z, x)", "float z = {0}"),
        ("s = Softmax(x) n = IsNaN(x) y = Where(n, z, s)", "float z = {0}"),
        (f"{_SHARES} y = Where(n, w, s)", "float z = {0}"),
    ],
    ids=["one", "minus 0", "the other way round", "any numbers", "of another", "no constant"],
)
def test_other_choices_stay(body: str, zero: str) -> None:
    model = _choice(body, zero)
    assert [n.op_type for n in _reduced(model).graph.node] == [n.op_type for n in model.graph.node]
