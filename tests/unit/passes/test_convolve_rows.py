"""Convolutions of sequences give the same numbers as those of images of one row."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort
import pytest
import torch
from near import assert_near
from onnx import numpy_helper

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.select_kernels.convolve_rows import ConvolveRows
from sambac.passes.simplify.eliminate_dead_code import EliminateDeadCode

CHANNELS = 32
_WEIGHTS = {
    "w": (CHANNELS, CHANNELS, 3),
    "v": (CHANNELS, CHANNELS, 3),
    "d": (CHANNELS, 1, 5),  # of one channel each
    "p": (CHANNELS, CHANNELS, 1),
    "g": (CHANNELS, CHANNELS // 2, 3),  # of half of the channels
    "o": (CHANNELS + 1, CHANNELS, 3),
    "b": (CHANNELS,),
}


def _weights() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    return {
        name: (rng.standard_normal(shape) / 8).astype(np.float32)
        for name, shape in _WEIGHTS.items()
    }


def _model(body: str, length: str = "19", dtype: str = "float") -> onnx.ModelProto:
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> g ({dtype}[2, {CHANNELS}, {length}] x) => '
        f"({dtype}[2, c, n] y) <float low = {{-0.25}}, float high = {{0.25}}> {{ {body} }}"
    )
    model.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in _weights().items()
    )
    return model


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    made = ir.from_proto(model)
    for step in (InferShapes(), ConvolveRows(), EliminateDeadCode()):
        step(made)
    return ir.to_proto(made)


def _exact(body: str, x: torch.Tensor) -> torch.Tensor:
    """The same in float64, as PyTorch has it."""
    w, v, d, b = (torch.from_numpy(_weights()[name]).double() for name in "wvdb")
    conv, relu = torch.nn.functional.conv1d, torch.relu
    results = {
        "strided": lambda: conv(x[..., 1:], w, b, stride=2)[..., :9],
        "dilated": lambda: conv(x, w, dilation=4, padding=4),
        "one-sided": lambda: conv(torch.nn.functional.pad(x, (2, 0)), w, b),
        "each channel": lambda: conv(x, d, b, padding=2, groups=CHANNELS),
        "chain": lambda: conv(relu(conv(x, w, b, padding=1)), v, b, padding=1).clamp(-0.25, 0.25),
        "residual": lambda: relu(
            conv(relu(conv(x, w, padding=1)), v, padding=1) + relu(conv(x, w, padding=1))
        ),
    }
    return results[body]()


BODIES = {
    "strided": (
        "t = Slice(x, from, to, axis) y = Conv<strides = [2]>(t, w, b)",
        ["Slice", "Unsqueeze", "Conv", "Squeeze"],
    ),
    "dilated": (
        "y = Conv<dilations = [4], pads = [4, 4]>(x, w)",
        ["Unsqueeze", "Conv", "Squeeze"],
    ),
    "one-sided": ("y = Conv<pads = [2, 0]>(x, w, b)", ["Unsqueeze", "Conv", "Squeeze"]),
    "each channel": (
        f"y = Conv<group = {CHANNELS}, pads = [2, 2]>(x, d, b)",
        ["Unsqueeze", "Conv", "Squeeze"],
    ),
    "chain": (
        (
            "s = Conv<pads = [1, 1]>(x, w, b) r = Relu(s) t = Conv<pads = [1, 1]>(r, v, b) "
            "y = Clip(t, low, high)"
        ),
        ["Unsqueeze", "Conv", "Relu", "Conv", "Clip", "Squeeze"],
    ),
    "residual": (
        (
            "s = Conv<pads = [1, 1]>(x, w) r = Relu(s) t = Conv<pads = [1, 1]>(r, v) "
            "a = Add(t, r) y = Relu(a)"
        ),
        ["Unsqueeze", "Conv", "Relu", "Conv", "Add", "Relu", "Squeeze"],
    ),
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("length", ["19", "n"])
def test_results_and_operators(name: str, length: str) -> None:
    body, operators = BODIES[name]
    model = _model(body, length)
    for key, value in {"from": 1, "to": 19, "axis": 2}.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray([value]), key))
    widened = _widened(model)
    assert [node.op_type for node in widened.graph.node] == operators
    x = np.random.default_rng(1).standard_normal((2, CHANNELS, 19)).astype(np.float32)
    (found,) = ort.InferenceSession(widened.SerializeToString()).run(None, {"x": x})
    exact = _exact(name, torch.from_numpy(x).double())
    assert_near(found, exact.numpy(), size=1.0, what=name)


@pytest.mark.parametrize(
    "body",
    [
        "y = Conv(x, p)",
        "y = Conv<group = 2>(x, g)",
        "y = Conv(x, o)",
        'y = Conv<auto_pad = "SAME_UPPER">(x, w)',
        "z = Add(w, v) y = Conv(x, z)",
    ],
    ids=["one number", "groups", "channels beside blocks", "padding not spelled", "no constant"],
)
def test_what_stays(body: str) -> None:
    model = _model(body)
    assert [node.op_type for node in _widened(model).graph.node] == [
        node.op_type for node in model.graph.node
    ]
