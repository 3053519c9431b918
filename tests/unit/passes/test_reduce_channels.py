"""Reductions over the channels of one image give the same numbers along the first axis."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from near import assert_near

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.reduce_strength import ReduceStrength

Array = np.ndarray


def _model(body: str, shape: str, opset: int) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[{shape}] x) => (float y) '
        f"<int64[1] channels = {{1}}, int64[1] same = {{-3}}> {{ {body} }}"
    )


def _moved(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.output[0].type.tensor_type.ClearField("shape")
    made = ir.from_proto(onnx.shape_inference.infer_shapes(model))
    InferShapes()(made)
    ReduceStrength()(made)
    return ir.to_proto(made)


def _values(shape: tuple[int, ...]) -> Array:
    x = np.random.default_rng(4).standard_normal(shape).astype(np.float32)
    x[0, :, 0, :5] = np.inf, -np.inf, np.nan, 0.0, -200.0
    x[0, 1, 1, :3] = np.inf, -np.inf, np.nan
    return x


_EXACT = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min,
}  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 6, 32, 32), (1, 6, 25, 41)])
@pytest.mark.parametrize("name", _EXACT)
@pytest.mark.parametrize("opset", [12, 18])
def test_reductions(name: str, shape: tuple[int, ...], opset: int) -> None:
    by_input = opset == 18
    body = (
        f"y = {name}<keepdims = 0>(x, same)"
        if by_input
        else f"y = {name}<axes = [1], keepdims = 0>(x)"
    )
    moved = _moved(_model(body, ", ".join(map(str, shape)), opset))
    aliases = shape[2] * shape[3] % 1024 == 0
    first = ["Reshape", name, "Reshape"]
    kept = name in ("ReduceMax", "ReduceMin") and not aliases
    assert [node.op_type for node in moved.graph.node] == ([name] if kept else first)
    x = _values(shape)
    if name in ("ReduceMax", "ReduceMin"):
        x = np.nan_to_num(x, posinf=np.inf, neginf=-np.inf)  # no kernel of these minds NaN
    (found,) = ort.InferenceSession(moved.SerializeToString()).run(None, {"x": x})
    with np.errstate(all="ignore"):
        exact = _EXACT[name](x.astype(np.float64), axis=1)
    assert_near(found, exact, what=name)


@pytest.mark.parametrize("opset", [13, 18])
def test_softmax(opset: int) -> None:
    moved = _moved(_model("y = Softmax<axis = 1>(x)", "1, 6, 25, 41", opset))
    assert "Softmax" not in [node.op_type for node in moved.graph.node]
    x = _values((1, 6, 25, 41))
    (found,) = ort.InferenceSession(moved.SerializeToString()).run(None, {"x": x})
    double = x.astype(np.float64)
    with np.errstate(all="ignore"):
        powers = np.exp(double - double.max(axis=1, keepdims=True))
        exact = powers / powers.sum(axis=1, keepdims=True)
    assert np.isnan(exact).any()
    assert_near(found, exact)


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("y = ReduceSum(x, channels)", "2, 6, 32, 32"),
        ("y = ReduceSum(x, channels)", "n, 6, 32, 32"),
        ("y = ReduceSum(x, channels)", "1, 6, 4, 4"),
        ("y = ReduceSum(x, channels)", "1, 4096, 1, 1"),
        ("y = Softmax<axis = 3>(x)", "1, 6, 32, 32"),
        ("y = ReduceL2(x, channels)", "1, 6, 32, 32"),
    ],
    ids=["a batch", "an open batch", "little", "no pixels", "last axis", "another reduction"],
)
def test_what_stays(body: str, shape: str) -> None:
    model = _model(body, shape, 18)
    assert len(_moved(model).graph.node) == len(model.graph.node)
