"""Group normalisation keeps its digits where the mean of a group is large."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.lower_normalization import LowerGroupNormalization

TEXT = """
<ir_version: 10, opset_import: ["" : {opset}]>
normalise (float[2, 6, {size}, 5] x, float[6] scale, float[6] bias) => (float[2, 6, {size}, 5] y)
{{
  y = GroupNormalization <num_groups = 3, epsilon = 0.001> (x, scale, bias)
}}
"""


def lowered(opset: int = 21, size: int | str = 4) -> ir.Model:
    model = ir.from_proto(onnx.parser.parse_model(TEXT.format(opset=opset, size=size)))
    InferShapes()(model)
    LowerGroupNormalization()(model)
    return model


@pytest.mark.parametrize("mean", [0, 100, 1000])
def test_numbers_are_those_of_two_passes(mean: int):
    session = onnxruntime.InferenceSession(ir.to_proto(lowered()).SerializeToString())
    rng = np.random.default_rng(0)
    x = (mean + rng.normal(size=(2, 6, 4, 5))).astype(np.float32)
    scale, bias = (rng.normal(size=6).astype(np.float32) for _ in range(2))
    groups = x.astype(np.float64).reshape(2, 3, 40)
    centred = groups - groups.mean(-1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
    channels = (1, 6, 1, 1)
    expected = normal.reshape(x.shape) * scale.reshape(channels) + bias.reshape(channels)
    (y,) = session.run(None, {"x": x, "scale": scale, "bias": bias})
    np.testing.assert_allclose(y, expected, atol=1e-5 + 2e-6 * mean)


@pytest.mark.parametrize(("opset", "size"), [(18, 4), (21, "height")])
def test_what_is_not_known_to_fit_stays(opset: int, size: int | str):
    (node,) = lowered(opset, size).graph
    assert node.op_type == "GroupNormalization"


def test_shapes_behind_it_are_known():
    text = TEXT.format(opset=21, size=4).replace("float[2, 6, 4, 5] y", "float loss")
    text = text.replace("\n}", "\n  loss = ReduceMean <keepdims = 0> (y)\n}")
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapes()(model)
    LowerGroupNormalization()(model)
    assert model.graph.outputs[0].shape == ()


@pytest.mark.parametrize(("name", "dtype"), [("float16", 10), ("bfloat16", 16)])
def test_16_bit_numbers_are_float32_meanwhile(name: str, dtype: int):
    text = TEXT.format(opset=21, size=4).replace("float[", f"{name}[")
    model = ir.from_proto(onnx.parser.parse_model(text))
    InferShapes()(model)
    LowerGroupNormalization()(model)
    operators = [node.op_type for node in model.graph]
    assert operators.count("InstanceNormalization") == operators.count("BatchNormalization") == 1
    assert all(
        value.dtype == ir.DataType.FLOAT
        for node in model.graph
        if node.op_type.endswith("Normalization")
        for value in node.inputs
    )
    assert model.graph.outputs[0].dtype == ir.DataType(dtype)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
