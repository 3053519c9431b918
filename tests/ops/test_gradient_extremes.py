"""Gradients at kinks, ties, poles and large numbers are torch's: no NaN where it has a number."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from gradient_check import Case, build, in_torch, run

from sambac.autodiff import differentiate
from sambac.passes.infer_shapes import infer

Array = np.ndarray[Any, np.dtype[Any]]

LARGE = np.array([-1e4, -90.0, -20.0, -7.0, 0.0, 7.0, 20.0, 90.0, 1e4])
KINKS = np.array([-6.0, -3.0, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 3.0, 6.0])
BOTH = np.concatenate([LARGE, KINKS])
UP_TO_90 = np.array([-90.0, -85.0, -20.0, 0.0, 20.0, 85.0])
ONES = np.array([[2.0, 2.0, 1.0], [-1.0, -1.0, -1.0], [0.0, -0.0, -4.0]])
NOTHING = np.zeros((2, 3))
MASKED = np.array([[0.3, -np.inf, 1.2], [-np.inf, 90.0, -90.0]])


CASES = [
    Case("Abs", (BOTH,), torch.abs),
    Case("Celu", (BOTH,), lambda x: F.celu(x, 1.5), {"alpha": 1.5}),
    Case("Clip", (BOTH, np.float64(-1), np.float64(0.5)), lambda x, low, high: x.clamp(-1, 0.5),
         constants=(1, 2)),
    Case("Elu", (BOTH,), lambda x: F.elu(x, 0.3), {"alpha": 0.3}),
    Case("Erf", (BOTH,), torch.erf),
    Case("Exp", (UP_TO_90,), torch.exp),
    Case("Gelu", (BOTH,), F.gelu),
    Case("Gelu", (BOTH,), lambda x: F.gelu(x, approximate="tanh"), {"approximate": "tanh"},
         label="tanh"),
    Case("HardSigmoid", (BOTH,), F.hardsigmoid, {"alpha": 1 / 6, "beta": 0.5}),
    Case("HardSwish", (BOTH,), F.hardswish),
    Case("LeakyRelu", (BOTH,), lambda x: F.leaky_relu(x, 0.2), {"alpha": 0.2}),
    Case("Log", (np.array([0.0, 1e-30, 1e30]),), torch.log),
    Case("Max", (BOTH, BOTH.copy()), torch.maximum),
    Case("Max", (np.array([np.inf, -np.inf]), np.array([np.inf, 0.0])), torch.maximum,
         label="infinite"),
    Case("Min", (BOTH, np.asarray(0.0)), torch.minimum),
    Case("Mish", (BOTH,), F.mish),
    Case("PRelu", (BOTH, np.array([0.3])), F.prelu),
    Case("Pow", (BOTH, np.array(2)), torch.pow, label="square"),
    Case("Pow", (BOTH, np.array(0)), torch.pow, label="zeroth"),
    Case("Pow", (NOTHING, np.array([0.0, 1.0, 2.0])), torch.pow, label="of zero"),
    Case("Pow", (NOTHING, np.asarray(0.5)), torch.pow, constants=(1,), label="root of zero"),
    Case("Reciprocal", (LARGE[:4],), torch.reciprocal),
    Case("Relu", (BOTH,), F.relu),
    Case("Selu", (BOTH,), F.selu),
    Case("Shrink", (BOTH,), lambda x: F.hardshrink(x, 0.5), {"lambd": 0.5}),
    Case("Sigmoid", (BOTH,), torch.sigmoid),
    Case("Softplus", (BOTH,), F.softplus),
    Case("Softsign", (BOTH,), F.softsign),
    Case("Sqrt", (np.array([0.0, 1e-30, 1e30]),), torch.sqrt),
    Case("Tanh", (BOTH,), torch.tanh),
    Case("ThresholdedRelu", (BOTH,), lambda x: F.threshold(x, 1.0, 0), {"alpha": 1.0}),
    Case("ReduceL1", (ONES, np.array([1])), lambda x, _: x.abs().sum(1, True)),
    Case("ReduceL2", (ONES * 0, np.array([1])),
         lambda x, _: torch.linalg.vector_norm(x, 2, 1, True)),
    Case("ReduceMax", (ONES, np.array([1])), lambda x, _: x.amax(1, True)),
    Case("ReduceMin", (ONES, np.array([0])), lambda x, _: x.amin(0, True)),
    Case("ReduceProd", (ONES, np.array([1])), lambda x, _: x.prod(1, True)),
    Case("ReduceLogSumExp", (MASKED, np.array([1])), lambda x, _: x.logsumexp(1, True)),
    Case("Softmax", (MASKED,), lambda x: F.softmax(x, -1)),
    Case("SoftmaxCrossEntropyLoss", (ONES * 1e4, np.array([0, 1, 2])), F.cross_entropy),
    Case("SoftmaxCrossEntropyLoss", (ONES, np.full(3, -100)),
         lambda x, y: 0 * F.cross_entropy(x, y, reduction="sum"), {"ignore_index": -100},
         label="nothing to learn"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradients_at_extreme_values(case: Case):
    graph = build(case, np.float32)
    results = run(graph, case)
    _, gradients = in_torch(graph, case)
    for index, expected in gradients.items():
        actual = results[graph.gradients[index]]
        with np.errstate(over="ignore"):
            single = expected.astype(np.float32)
        np.testing.assert_allclose(actual, single, rtol=1e-5, atol=1e-6, err_msg=f"input {index}")


GUARDED = {
    "root of relu": ("r = Relu (x)  y = Sqrt (r)", lambda x: x.relu().sqrt()),
    "root of clip": ("r = Clip (x, zero)  y = Sqrt (r)", lambda x: x.clamp(min=0).sqrt()),
    "root of where": (
        "m = Greater (x, zero)  r = Where (m, x, zero)  y = Sqrt (r)",
        lambda x: torch.where(x > 0, x, 0.0).sqrt(),
    ),
    "division by relu": ("r = Relu (x)  y = Div (one, r)", lambda x: 1 / x.relu()),
    "power of relu": ("r = Relu (x)  y = Pow (r, half)", lambda x: x.relu().pow(0.5)),
    "root of reshaped relu": (
        "r = Relu (x)  v = Reshape (r, two)  y2 = Sqrt (v)  y = Reshape (y2, six)",
        lambda x: x.relu().reshape(2, 3).sqrt(),
    ),
    "root of scaled relu": (
        "r = Relu (x)  h = Mul (r, half)  y = Sqrt (h)",
        lambda x: (x.relu() / 2).sqrt(),
    ),
    "root of sums of relu": (
        (
            "r = Relu (x)  v = Reshape (r, two)  s = ReduceSum (v, last)  t = Sqrt (s)  "
            "y2 = Expand (t, two)  y = Reshape (y2, six)"
        ),
        lambda x: x.relu().reshape(2, 3).sum(1, True).sqrt().expand(2, 3),
    ),
    "logarithm of threshold": (
        "r = ThresholdedRelu <alpha = 0.5> (x)  y = Log (r)",
        lambda x: F.threshold(x, 0.5, 0).log(),
    ),
}


@pytest.mark.parametrize("name", GUARDED)
def test_zeros_stop_infinite_gradients(name: str):
    nodes, function = GUARDED[name]
    model = ir.from_onnx_text(f"""
        <ir_version: 10, opset_import: ["": 23]>
        g (float[6] x, float[6] dy) => (float[6] y)
        <float zero = {{0.0}}, float one = {{1.0}}, float half = {{0.5}},
         int64[2] two = {{2, 3}}, int64[1] six = {{6}}, int64[1] last = {{1}}> {{ {nodes} }}
    """)
    infer(model)
    x, dy = model.graph.inputs
    gradient = differentiate(model, {model.graph.outputs[0]: dy}, [x])[x]
    model.graph.outputs[:] = [gradient]
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    numbers = np.array([-2, -0.0, 0.0, 0.5, 1, 4], np.float32)
    (actual,) = session.run(None, {"x": numbers, "dy": np.ones(6, np.float32)})
    leaf = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(function(leaf).sum(), leaf)
    np.testing.assert_allclose(actual, expected.numpy(), rtol=2e-6)
