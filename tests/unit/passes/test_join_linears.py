"""A linear layer and the pointwise convolution behind it are one, and give the same numbers."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from near import assert_near
from onnx import numpy_helper

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.join_linears import JoinLinears
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode

ROWS = "m = MatMul(x, v) a = Add(m, c)"
IMAGE = "t = Transpose<perm = [0, 2, 1]>(a) i = Reshape(t, sizes)"
BENT = IMAGE.replace("(a)", "(e)")
WEIGHTS = {
    "v": (5, 24),
    "c": (24,),
    "w": (7, 24, 1, 1),
    "b": (7,),
    "u": (7, 12, 1, 1),
    "k": (7, 24, 3, 3),
}


def _model(body: str, rows: str = "float[2, 12, 5] x", **changed: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({rows}) => (float[p, q, r, s] y) '
        f"<int64[4] sizes = {{2, 24, 3, 4}}> {{ {body} }}"
    )
    rng = np.random.default_rng(4)
    for name, shape in WEIGHTS.items():
        values = changed.get(name, rng.standard_normal(shape)).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def _joined(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    for step in (InferShapes(), JoinLinears(), EliminateDeadCode()):
        step(made)
    return ir.to_proto(made)


@pytest.mark.parametrize(
    "body",
    [
        f"{ROWS} {IMAGE} y = Conv(i, w, b)",
        f"m = MatMul(x, v) a = Add(c, m) {IMAGE} y = Conv(i, w)",
        f"a = MatMul(x, v) {IMAGE} y = Conv<strides = [1, 1]>(i, w, b)",
    ],
    ids=["with both biases", "with that of the layer", "with that of the convolution"],
)
def test_the_same_numbers(body: str) -> None:
    model = _model(body)
    joined = _joined(model)
    assert [node.op_type for node in joined.graph.node] == ["Transpose", "Reshape", "Conv"]
    x = np.random.default_rng(5).standard_normal((2, 12, 5)).astype(np.float32)
    x[1, 3, 2] = np.nan
    found, wanted = (
        ort.InferenceSession(each.SerializeToString()).run(None, {"x": x})[0]
        for each in (joined, model)
    )
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    assert np.isnan(found).sum() == 7
    assert_near(np.nan_to_num(found), np.nan_to_num(wanted.astype(np.float64)))


@pytest.mark.parametrize(
    "body",
    [
        f"{ROWS} {IMAGE} d = Conv(i, w, b) e = ReduceSum(m) y = Add(d, e)",
        f"{ROWS} {IMAGE} d = Conv(i, w, b) e = ReduceMax(i) y = Add(d, e)",
        f"{ROWS} {IMAGE} y = Conv(i, k, b)",
        f"{ROWS} {IMAGE} y = Conv<strides = [2, 2]>(i, w, b)",
        f"m = MatMul(x, v) e = Relu(m) {BENT} y = Conv(i, w)",
        f"{ROWS} i = Reshape(a, sizes) y = Conv(i, w, b)",
        f"{ROWS} t = Transpose(a) i = Reshape(t, sizes) y = Conv(i, w, b)",
        f"{ROWS} {IMAGE} y = Conv<group = 2>(i, u, b)",
    ],
    ids=[
        "the product is read twice", "the image is read twice", "of a window", "of every other",
        "bent", "not turned", "turned around", "in groups",
    ],
)  # fmt: skip
def test_others_stay(body: str) -> None:
    model = _model(body)
    assert [n.op_type for n in _joined(model).graph.node] == [n.op_type for n in model.graph.node]


def test_one_layer_has_to_be_less_work() -> None:
    model = _model(
        f"{ROWS} {IMAGE} y = Conv(i, w, b)",
        "float[2, 12, 40] x",
        v=np.ones((40, 24)),
        w=np.ones((60, 24, 1, 1)),
        b=np.ones(60),
    )
    assert len(_joined(model).graph.node) == len(model.graph.node)


@pytest.mark.parametrize("wrong", [np.inf, np.nan, 3e38])
def test_weights_that_are_not_finite_stay(wrong: float) -> None:
    weights = np.ones((5, 24))
    weights[2, 3:5] = wrong
    model = _model(f"{ROWS} {IMAGE} y = Conv(i, w, b)", v=weights, w=np.full((7, 24, 1, 1), 2.0))
    assert len(_joined(model).graph.node) == len(model.graph.node)
