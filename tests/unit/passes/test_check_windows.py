"""Windows on images: of what onnxruntime's results have, and what it would refuse in every run."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from near import assert_near
from onnx import TensorProto, helper

import sambac
import sambarun

X = np.sin(np.arange(10, dtype=np.float32)).reshape(1, 2, 5)


def _model(op_type: str, opset: int, **attributes: Any) -> onnx.ModelProto:
    """Return a model with one operator on images of 5, whose windows are of 4 elements."""
    inputs, weights = ["x"], []
    if op_type.startswith("Conv"):
        inputs.append("w")
        weights.append(helper.make_tensor("w", TensorProto.FLOAT, [2, 2, 4], np.arange(16) / 16))
    window = {"kernel_shape": [4], **attributes}
    nodes = [
        helper.make_node(op_type, inputs, ["window"], "slid", **window),
        helper.make_node("Neg", ["window"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


_SAME = {"auto_pad": "SAME_UPPER"}
_RIGHT: list[tuple[str, int, dict[str, Any], int]] = [  # and how many windows there are
    ("MaxPool", 13, {"dilations": [2], **_SAME}, 2),
    ("MaxPool", 13, {"kernel_shape": [2], "dilations": [6], "auto_pad": "SAME_LOWER"}, 0),
    ("AveragePool", 19, {"kernel_shape": [2], "dilations": [6], **_SAME}, 0),
    ("LpPool", 22, {"kernel_shape": [2], "dilations": [6], **_SAME}, 0),
    ("AveragePool", 22, {"kernel_shape": [6], "auto_pad": "VALID", "ceil_mode": 1}, 0),
    ("ConvTranspose", 13, {"output_shape": [4]}, 4),
    ("ConvTranspose", 13, {"output_shape": [3], "auto_pad": "SAME_LOWER"}, 3),
    ("ConvTranspose", 22, {"output_padding": [1], "strides": [2], **_SAME}, 10),
    ("ConvTranspose", 22, {"output_padding": [1], "strides": [6], **_SAME}, 29),
    ("ConvTranspose", 22, {"strides": [6], "dilations": [2], **_SAME}, 30),
]


@pytest.mark.parametrize(("op_type", "opset", "attributes", "windows"), _RIGHT)
def test_there_are_as_many_as_in_onnxruntime(
    op_type: str, opset: int, attributes: dict[str, Any], windows: int
) -> None:
    model = _model(op_type, opset, **attributes)
    (plain,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    assert plain.shape == (1, 2, windows)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": X})["y"]
    assert_near(found, plain.astype(np.float64), what=op_type)


_WRONG: list[tuple[str, int, dict[str, Any], str]] = [
    ("Conv", 13, {"dilations": [2]}, r"Invalid input shape: \{5\}"),
    ("Conv", 13, {"dilations": [2], **_SAME}, "Dilation not supported for AutoPadType::SAME_UPPER"),
    ("MaxPool", 13, {"dilations": [2], "auto_pad": "VALID"}, "output dimension is negative"),
    ("AveragePool", 22, {"dilations": [4], **_SAME}, "output dimension is negative"),
    ("LpPool", 11, {"pads": [4, 0]}, "Pad should be smaller than kernel"),
    ("MaxPool", 11, {"kernel_shape": [1], "strides": [3], **_SAME}, "must be non-negative"),
    ("ConvTranspose", 11, {"output_padding": [1]}, r"output_padding\[0\] \(1\) must be less"),
    ("ConvTranspose", 11, {"output_shape": [9]}, "Explicit output_shape is inconsistent"),
    ("ConvTranspose", 11, {"pads": [4, 5]}, "Computed output dimension is <= 0"),
]


@pytest.mark.parametrize(("op_type", "opset", "attributes", "words"), _WRONG)
def test_what_onnxruntime_refuses_is_not_compiled(
    op_type: str, opset: int, attributes: dict[str, Any], words: str
) -> None:
    model = _model(op_type, opset, **attributes)
    match = rf"do not fit.*\n  {op_type} 'slid': a window of \d on an image of 5: [^/]*{words}"
    with pytest.raises(sambac.CompileError, match=match):
        sambac.compile(model)


def test_windows_on_open_sizes_are_compiled() -> None:
    model = _model("Conv", 13, dilations=[2])
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "length"
    x = np.ones((1, 2, 9), np.float32)
    with sambarun.load(sambac.compile(model)) as executable:
        assert executable.run({"x": x})["y"].shape == (1, 2, 3)


_UNTRAINED: list[tuple[str, dict[str, Any], str]] = [
    ("MaxPool", {"dilations": [2], **_SAME}, "has margins of several sizes"),
    (
        "AveragePool",
        {"kernel_shape": [6], "strides": [2], "count_include_pad": 1},
        "its windows are larger than the image with its pads",
    ),
    ("ConvTranspose", {"output_shape": [4]}, "its output_shape is smaller than its image"),
    ("ConvTranspose", {"strides": [6], **_SAME}, "has a result of two sizes; give it pads"),
]


@pytest.mark.parametrize(("op_type", "attributes", "words"), _UNTRAINED)
def test_windows_of_several_readings_do_not_train(
    op_type: str, attributes: dict[str, Any], words: str
) -> None:
    model = _model(op_type, 19, **attributes)
    sambac.compile(model)
    del model.graph.output[:]
    made = (
        helper.make_node("Mul", ["x", "p"], ["image"]),
        helper.make_node("ReduceMean", ["y"], ["loss"], keepdims=0),
    )
    model.graph.node[0].input[0] = "image"
    model.graph.node.insert(0, made[0])
    model.graph.node.append(made[1])
    model.graph.initializer.append(helper.make_tensor("p", TensorProto.FLOAT, [5], np.ones(5)))
    model.graph.output.append(helper.make_tensor_value_info("loss", TensorProto.FLOAT, []))
    with pytest.raises(sambac.CompileError, match=f"flows through {op_type} .*{words}"):
        sambac.compile(model, sambac.CompileOptions(train=True))
