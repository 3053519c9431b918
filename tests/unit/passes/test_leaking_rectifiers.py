"""PRelu by faster operators: the same numbers, whatever they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from onnx import numpy_helper

from sambac.passes.infer_shapes import InferShapes
from sambac.passes.reduce_strength import ReduceStrength

_SHAPE = (2, 16, 9, 17)
_EDGES = (np.nan, np.inf, -np.inf, 0.0, -0.0, 3e38, -3e38, 1e-45, -1e-45)


def _model(slope: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 16]> '
        "g (float[2, 16, 9, 17] x) => (float[2, 16, 9, 17] y) { y = PRelu(x, s) }"
    )
    model.graph.initializer.append(numpy_helper.from_array(slope.astype(np.float32), "s"))
    return model


def _reduced(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    InferShapes()(made)
    ReduceStrength()(made)
    return ir.to_proto(made)


@pytest.mark.parametrize(
    ("slope", "operators"),
    [
        (np.full((1, 1, 1), 0.25), ["LeakyRelu"]),
        (np.full((), -2.0), ["LeakyRelu"]),
        (np.linspace(-2, 3, 16).reshape(16, 1, 1), ["Min", "Mul", "Relu", "Add"]),
        (np.linspace(-1, 1, 17), ["Min", "Mul", "Relu", "Add"]),
        (np.asarray([np.inf, *[0.5] * 15]).reshape(16, 1, 1), ["PRelu"]),
        (np.full((1, 1, 1), np.nan), ["PRelu"]),
    ],
    ids=["one", "one that turns", "channels", "columns", "infinite", "no number"],
)
def test_the_same_numbers(slope: np.ndarray, operators: list[str]) -> None:
    x = np.random.default_rng(2).standard_normal(_SHAPE).astype(np.float32)
    for row in range(9):  # at the places of vectors and behind them
        x[0, row, row, : len(_EDGES)] = x[1, row + 7, row, -len(_EDGES) :] = _EDGES
    reduced = _reduced(_model(slope))
    assert [node.op_type for node in reduced.graph.node] == operators
    (found,) = ort.InferenceSession(reduced.SerializeToString()).run(None, {"x": x})
    with np.errstate(all="ignore"):
        wanted = np.where(x >= 0, x, (slope.astype(np.float32) * x).astype(np.float32))
    np.testing.assert_array_equal(found, np.where(np.isnan(x), np.nan, wanted))


def test_a_small_tensor_stays() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 16]> g (float[2, 3] x) => (float[2, 3] y) '
        "<float[3] s = {1, 2, 3}> { y = PRelu(x, s) }"
    )
    assert [node.op_type for node in _reduced(model).graph.node] == ["PRelu"]
