"""Activations by faster operators: the same numbers, whatever they are."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
from near import assert_near
from onnx import numpy_helper

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.lower_activations import LowerActivations
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode

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
    for step in (InferShapes(), LowerActivations(), EliminateDeadCode()):
        step(made)
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


@pytest.mark.parametrize(
    "body",
    [
        "y = Mish(x)",
        "s = Softplus(x) t = Tanh(s) y = Mul(x, t)",
        "s = Softplus(x) t = Tanh(s) y = Mul(t, x)",
    ],
)
def test_mish_everywhere(body: str) -> None:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g (float[400] x) => (float[400] y) {{ {body} }}'
    )
    reduced = _reduced(model)
    assert {"Softplus", "Tanh", "Mish"}.isdisjoint(node.op_type for node in reduced.graph.node)
    x = np.linspace(-110, 110, 400).astype(np.float32)
    x[:6] = np.nan, np.inf, -np.inf, 0.0, 3e38, -3e38
    (found,) = ort.InferenceSession(reduced.SerializeToString()).run(None, {"x": x})
    with np.errstate(all="ignore"):
        exact = x.astype(np.float64) * np.tanh(np.logaddexp(0, x.astype(np.float64)))
    ends = np.array([np.nan, np.inf, np.nan, 0.0, 3e38, 0.0], np.float32)
    np.testing.assert_array_equal(found[:6], ends)
    assert_near(found[6:], exact[6:])
    small = slice(6, 200)  # far below 0 each number by itself
    np.testing.assert_allclose(found[small], exact[small], rtol=1e-5, atol=1e-36)


@pytest.mark.parametrize(
    "body",
    [
        "s = Softplus(x) t = Tanh(s) a = Mul(x, t) y = Add(a, s)",
        "s = Softplus(z) t = Tanh(s) y = Mul(x, t)",
    ],
    ids=["read twice", "of another"],
)
def test_what_is_no_mish_stays(body: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[4] x, float[4] z) => (float[4] y) '
        f"{{ {body} }}"
    )
    assert len(_reduced(model).graph.node) == len(model.graph.node)
