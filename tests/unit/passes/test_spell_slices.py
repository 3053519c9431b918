"""Slices that go back to INT_MAX, beside onnxruntime on the file as it is."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest

import sambac
import sambarun

_FAR = (2**31 - 1, 2**63 - 1)
_ENDS = (*_FAR, 2**31 - 2, 2**63 - 2, 2**31, 100, 5, 0, -6, -(2**31), -(2**63))
_CASES = [
    *itertools.product((4, 2, 100, -3, -(2**63), *_FAR), _ENDS, (-1, -2, -7, 1, 2), ("",)),
    *((start, end, -1, made) for start, end, made in itertools.product((3, -9), _FAR, ("made",))),
]


def _slices(dtype: type) -> onnx.ModelProto:
    """Return a model of all cases, with their numbers in `dtype` as far as these fit."""
    make = onnx.helper
    nodes, constants = [], []
    for at, (*numbers, made) in enumerate(_CASES):
        inside = [int(np.clip(number, *_limits(dtype))) for number in numbers]
        for name, number in zip(("start", "end", "step"), inside, strict=True):
            constants.append(onnx.numpy_helper.from_array(np.array([number], dtype), f"{name}{at}"))
        end = f"end{at}"
        if made:
            nodes.append(make.make_node("Concat", [end], [f"made{at}"], f"concat{at}", axis=0))
            end = f"made{at}"
        names = ["x", f"start{at}", end, "axis", f"step{at}"]
        nodes.append(make.make_node("Slice", names, [f"y{at}"], f"slice{at}"))
    constants.append(onnx.numpy_helper.from_array(np.array([0], dtype), "axis"))
    kind = onnx.TensorProto.FLOAT
    outputs = [make.make_tensor_value_info(f"y{at}", kind, None) for at in range(len(_CASES))]
    inputs = [make.make_tensor_value_info("x", kind, [5])]
    graph = make.make_graph(nodes, "g", inputs, outputs, constants)
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 20)], ir_version=9)


def _limits(dtype: type) -> tuple[int, int]:
    facts = np.iinfo(dtype)
    return facts.min, facts.max


@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_as_onnxruntime_slices(dtype: type) -> None:
    model, x = _slices(dtype), np.arange(5, dtype=np.float32)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x})
    for case, name, expected in zip(_CASES, found, plain.run(None, {"x": x}), strict=True):
        np.testing.assert_array_equal(found[name], expected, err_msg=str(case))
