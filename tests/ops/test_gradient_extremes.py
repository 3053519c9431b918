"""Gradients at kinks, ties, poles and large numbers are torch's: no NaN where it has a number.

The second table has zeros, constant rows, rows of one element and of none. No rule is without a row
in one of the two, unless it says why.
"""

from __future__ import annotations

from math import pi
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from gradient_check import Case, build, in_torch, run

from sambac.autodiff import differentiate
from sambac.ops import FAMILIES
from sambac.passes.legalize.infer_shapes import infer

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
    Case("Gelu", (np.array([-1e17, -1e10, 1e10, 1e17]),), lambda x: F.gelu(x, approximate="tanh"),
         {"approximate": "tanh"}, label="tanh of huge"),
    Case("Mish", (BOTH,), F.mish),
    Case("Mish", (np.array([-3e38, -1e20, 1e20, 3e38]),), F.mish, label="of huge"),
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
    Case("SoftmaxCrossEntropyLoss", (ONES, np.array([1, 1, -100]), np.array([1.0, 0.0, 1.0])),
         F.cross_entropy, {"ignore_index": -100}, constants=(2,), label="nothing that counts"),
]  # fmt: skip


A = np.array
SMALL = A([-1.0, -0.5, -0.0, 0.0, 0.5, 1.0])
HUGE = A([-1e4, -1.0, -0.0, 0.0, 1.0, 1e4])
SIDES = A([-2.0, -0.0, 0.0, 1e30, -1e30, 3.0]), A([1e30, 1.0, -3.0, 1e-30, 2.0, 0.0])
ANGLES = A([-pi, -pi / 2, -0.0, 0.0, pi / 4, 1e3])
ONE, NONE = A([[3.0]]), np.zeros((0, 3))
FLAT = np.full((2, 4), 3.0)
IMAGE = A([[[[1.0, 1, 2, 2], [1, 3, 3, 2], [0, 0, -1, -1], [5, 5, 5, 5]]]])
STILL = np.full((1, 2, 2, 2), 3.0)
AXIS = A([1])
HEADS = np.arange(4.0).reshape(1, 1, 2, 2)
MICROSOFT = "com.microsoft"
PAIR, TWO = np.ones(2), A([2.0, -1.0])

EDGES = [
    Case("Acos", (SMALL,), torch.acos),
    Case("Acosh", (A([1.0, 1.5, 1e4]),), torch.acosh),
    Case("Add", SIDES, torch.add),
    Case("Add", (NONE, A([1.0, 2, 3])), torch.add, label="of none"),
    Case("Asin", (SMALL,), torch.asin),
    Case("Asinh", (HUGE,), torch.asinh),
    Case("Atan", (HUGE,), torch.atan),
    Case("Atanh", (SMALL,), torch.atanh),
    Case("AveragePool", (IMAGE,), lambda x: F.avg_pool2d(x, 4, 4), {"kernel_shape": [4, 4]}),
    Case("Concat", (ONE, np.zeros((1, 0))), lambda *x: torch.cat(x, 1), {"axis": 1}),
    Case("Conv", (IMAGE, np.zeros((1, 1, 1, 1))), F.conv2d),
    Case("ConvTranspose", (IMAGE, np.zeros((1, 1, 1, 1))), F.conv_transpose2d),
    Case("Cos", (ANGLES,), torch.cos),
    Case("Cosh", (UP_TO_90 / 2,), torch.cosh),
    Case("CumSum", (ONE, A(1)), lambda x, _: x.cumsum(1)),
    Case("CumSum", (np.zeros((2, 0)), A(1)), lambda x, _: x.cumsum(1), label="of none"),
    Case("Det", (np.zeros((2, 1, 1)),), torch.det),
    Case("Div", (A([0.0, 1.0, -1.0, 1e30]), A([2.0, -0.5, 1e30, 1e-3])), torch.div),
    Case("Einsum", (NONE, np.ones((3, 2))), lambda x, y: x @ y, {"equation": "ij,jk->ik"}),
    Case("Expand", (ONE, A([2, 3])), lambda x, _: x.expand(2, 3)),
    Case("Flatten", (NONE,), lambda x: x.reshape(0, 3), {"axis": 1}),
    Case("Gather", (ONE, A([0, 0, 0])), lambda x, _: x[[0, 0, 0]]),
    Case("Gather", (ONE, np.zeros(0, np.int64)), lambda x, _: x[[]], label="of none"),
    Case("GatherElements", (ONE, A([[0, 0, 0]])), lambda x, i: x.gather(1, i), {"axis": 1}),
    Case("GatherND", (ONE, A([[0], [0]])), lambda x, _: x[[0, 0]]),
    Case("Gemm", (NONE, np.ones((3, 2)), TWO), lambda x, y, z: x @ y + z),
    Case("GlobalAveragePool", (IMAGE[:, :, :1, :1],), lambda x: x),
    Case("GlobalMaxPool", (IMAGE,), lambda x: F.adaptive_max_pool2d(x, 1)),
    Case("GroupNormalization", (STILL, PAIR, TWO), lambda x, g, b: F.group_norm(x, 1, g, b),
         {"num_groups": 1}),
    Case("InstanceNormalization", (STILL, PAIR, TWO),
         lambda x, g, b: F.instance_norm(x, weight=g, bias=b)),
    Case("BatchNormalization", (STILL, PAIR, TWO, PAIR * 3, PAIR * 0),
         lambda x, g, b, m, v: F.batch_norm(x, m, v, g, b), constants=(3, 4)),
    Case("LRN", (STILL * 0,), lambda x: F.local_response_norm(x, 3), {"size": 3}),
    Case("LayerNormalization", (FLAT, np.ones(4), np.ones(4)),
         lambda x, g, b: F.layer_norm(x, (4,), g, b)),
    Case("LayerNormalization", (ONE, np.ones(1), np.ones(1)),
         lambda x, g, b: F.layer_norm(x, (1,), g, b), label="of one"),
    Case("LogSoftmax", (ONES * 1e4,), lambda x: F.log_softmax(x, -1)),
    Case("LogSoftmax", (MASKED[:, :1] * 1e4,), lambda x: F.log_softmax(x, -1), label="of one"),
    Case("LpNormalization", (A([[3.0, 0, -4]]),), lambda x: F.normalize(x, dim=-1)),
    Case("LpPool", (IMAGE * 2,), lambda x: F.lp_pool2d(x, 2, 2, 2),
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("MatMul", (NONE, np.ones((3, 2))), torch.matmul),
    Case("MatMul", (np.zeros((2, 0)), np.zeros((0, 3))), torch.matmul, label="of nothing"),
    Case("MaxPool", (IMAGE,), lambda x: F.max_pool2d(x, 2), {
         "kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("Mean", (A([1e30]), A([-1e30])), lambda x, y: (x + y) / 2),
    Case("Mod", (A([-7.0, 0.0, 7.5]), A([2.0, 2.0, -2.0])), torch.fmod, {"fmod": 1}, wrt=(0,)),
    Case("Mul", (A([0.0, 1e30, -0.0]), A([1e30, 0.0, 2.0])), torch.mul),
    Case("Neg", (HUGE,), torch.neg),
    Case("NegativeLogLikelihoodLoss", (MASKED[:1, ::2], A([1])), F.nll_loss),
    Case("NegativeLogLikelihoodLoss", (ONES, np.full(3, -100)),
         lambda x, y: 0 * F.nll_loss(x, y, reduction="sum"), {"ignore_index": -100},
         label="nothing to learn"),
    Case("Pad", (ONE, A([1, 1, 1, 1])), lambda x, _: F.pad(x, (1, 1, 1, 1))),
    Case("Pad", (ONE, A([0, 0, -1, 1])), lambda x, _: F.pad(x, (0, 1, 0, -1)), label="away"),
    Case("RMSNormalization", (NOTHING, np.ones(3)), lambda x, g: F.rms_norm(x, (3,), g, 1e-5)),
    Case("ReduceLogSum", (A([[0.0, 1.0], [1e-30, 1e30]]), AXIS), lambda x, _: x.sum(1, True).log()),
    Case("ReduceMean", (ONE, AXIS), lambda x, _: x),
    Case("ReduceSum", (np.zeros((2, 0)), AXIS), lambda x, _: x.sum(1, True)),
    Case("ReduceSumSquare", (NOTHING, AXIS), lambda x, _: x.square().sum(1, True)),
    Case("Reshape", (NONE, A([3, 0])), lambda x, _: x.reshape(3, 0), {"allowzero": 1}),
    Case("ScatterElements", (ONE, A([[0]]), ONE), lambda x, i, u: x.scatter(1, i, u), {"axis": 1}),
    Case("ScatterND", (ONE, A([[0]]), ONE), lambda x, _, u: u + 0 * x),
    Case("Sin", (ANGLES,), torch.sin),
    Case("Sinh", (UP_TO_90 / 2,), torch.sinh),
    Case("Slice", (ONE, A([1]), A([1])), lambda x, *_: x[1:]),
    Case("Split", (NONE,), lambda x: x.split([1, 2], 1), {"axis": 1, "num_outputs": 2}, outputs=2),
    Case("Squeeze", (ONE,), lambda x: x[0, 0]),
    Case("Sub", SIDES, torch.sub),
    Case("Sum", (ONE, ONE, ONE), lambda *x: sum(x)),
    Case("Tan", (ANGLES[2:5],), torch.tan),
    Case("Tile", (ONE, A([2, 3])), lambda x, _: x.tile(2, 3)),
    Case("TopK", (ONES, A([1])), lambda x, _: x.topk(1)[0], {"axis": 1}, outputs=2),
    Case("Transpose", (NONE,), torch.t),
    Case("Trilu", (ONE,), torch.triu),
    Case("Unsqueeze", (NONE, A([0])), lambda x, _: x[None]),
    Case("Attention", (HEADS, HEADS, HEADS, A([[True, False], [False, False]])),
         F.scaled_dot_product_attention),
    Case("Cast", (HUGE,), lambda x: x, {"to": 1}),
    Case("CastLike", (HUGE, A([1.0])), lambda x, _: x, wrt=(0,)),
    Case("CenterCropPad", (ONE, A([3, 3])), lambda x, _: F.pad(x, (1, 1, 1, 1))),
    Case("Col2Im", (np.ones((1, 4, 4)), A([3, 3]), A([2, 2])), lambda x, *_: F.fold(x, 3, 2)),
    Case("DFT", (A([[[3.0, 0]]]), None, A(1)), lambda x, *_: x),
    Case("DepthToSpace", (STILL[:, :, :1, :1].repeat(2, 1),), lambda x: F.pixel_shuffle(x, 2),
         {"blocksize": 2}),
    Case("DeformConv", (ONE[None, None], np.ones((1, 1, 1, 1)), np.full((1, 2, *ONE.shape), 1e30)),
         lambda x, w, offset: (x * w + offset[:, :1]) * 0),
    Case("Dropout", (NONE,), lambda x: x),
    Case("GridSample", (IMAGE, A([[[[-1.0, 1], [1, 1], [-9, 0], [0.25, -0.25]]]])),
         lambda x, grid: F.grid_sample(x, grid, align_corners=True), {"align_corners": 1}),
    Case("Identity", (NONE,), lambda x: x),
    Case("MaxUnpool", (ONE[None, None], A([[[[3]]]])), lambda x, i: F.max_unpool2d(x, i, 2),
         {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("OneHot", (A([0, 5]), A(3), TWO), lambda _, __, v: v[A([[1, 0, 0], [0, 0, 0]])]),
    Case("Resize", (ONE[None, None], None, None, A([1, 1, 2, 3])),
         lambda x, *_: x.expand(1, 1, 2, 3), {"mode": "linear"}),
    Case("ReverseSequence", (ONE, A([1])), lambda x, _: x),
    Case("RoiAlign", (IMAGE, A([[0.0, 0, 1e30, 2], [1, 1, 1, 1]]), A([0, 0])),
         lambda x, *_: x[:, :, :2, :2].mean() * torch.tensor([0.0, 1]).view(2, 1, 1, 1),
         {"sampling_ratio": 1}, wrt=(0,), opset=21),
    Case("SpaceToDepth", (STILL[:, :1],), lambda x: F.pixel_unshuffle(x, 2), {"blocksize": 2}),
    Case("BiasGelu", (A([LARGE]), LARGE * 0), lambda x, b: F.gelu(x + b), domain=MICROSOFT),
    Case("FastGelu", (LARGE,), lambda x: F.gelu(x, approximate="tanh"), domain=MICROSOFT),
    Case("QuickGelu", (LARGE,), lambda x: x * torch.sigmoid(x), {"alpha": 1.0}, domain=MICROSOFT),
    Case("GatedAdd", (A([[0.0, 1e30]]), A([[1e30, -1e30]]), A([[0.0]])),
         lambda a, b, gate: a + b * gate, domain=MICROSOFT),
    Case("ExpandDims", (NONE, np.asarray(1, np.int32)), lambda x, _: x[:, None],
         domain=MICROSOFT),
    Case("FusedMatMul", (NONE, np.ones((3, 2))), torch.matmul, domain=MICROSOFT),
    Case("FusedGemm", (np.zeros((2, 3)), np.ones((3, 2)), np.zeros(2)),
         lambda x, y, z: (x @ y + z).relu(), {"activation": "Relu"}, domain=MICROSOFT),
    Case("SkipLayerNormalization", (FLAT[None], FLAT[None], np.ones(4), np.ones(4)),
         lambda x, y, g, b: F.layer_norm(x + y, (4,), g, b), {"epsilon": 1e-5}, domain=MICROSOFT),
    Case("SkipSimplifiedLayerNormalization", (FLAT[None] * 0, FLAT[None] * 0, np.ones(4)),
         lambda x, y, g: F.rms_norm(x + y, (4,), g, 1e-5), {"epsilon": 1e-5}, domain=MICROSOFT),
    Case("Where", (A([True, False]), A([1e30, 0.0]), A([0.0, 1e30])), torch.where),
]  # fmt: skip


@pytest.mark.parametrize("case", [*CASES, *EDGES], ids=str)
def test_gradients_at_extreme_values(case: Case):
    graph = build(case, np.float32)
    results = run(graph, case)
    _, gradients = in_torch(graph, case)
    for index, expected in gradients.items():
        actual = results[graph.gradients[index]]
        with np.errstate(over="ignore"):
            single = expected.astype(np.float32)
        np.testing.assert_allclose(actual, single, rtol=1e-5, atol=1e-6, err_msg=f"input {index}")


WITHOUT_EDGE = {
    "AffineGrid": "a product of matrices, whose sizes are constant",
    "Compress": "a Gather of what is kept",
    "GRU": "gates of Sigmoid and Tanh; lengths of 0 stand beside its other cases",
    "GlobalLpPool": "no kernel runs it",
    "LSTM": "as GRU",
    "MeanVarianceNormalization": "infinitely steep where rows are constant",
    "OwnGradient": "what the model brings",
    "RNN": "as GRU",
    "RotaryEmbedding": "linear",
    "STFT": "linear",
    "SimplifiedLayerNormalization": "RMSNormalization by another name",
}
"""Rules without a row, and why."""


def test_every_rule_has_an_edge():
    known = {name for family in FAMILIES for name in family.gradients}
    covered = {case.op for case in (*CASES, *EDGES)} | set(WITHOUT_EDGE)
    assert {name for name in known if name.rpartition(".")[2] not in covered} == set()
    assert set(WITHOUT_EDGE) <= {name.rpartition(".")[2] for name in known}


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
    "logarithm of sum of relu": (
        "r = Relu (x)  s = Add (r, r)  y = Log (s)",
        lambda x: (2 * x.relu()).log(),
    ),
    "arc cosine of relu": (
        "r = Relu (x)  c = Clip (r, zero, one)  d = Sub (one, c)  y = Acos (d)",
        lambda x: (1 - x.relu().clamp(0, 1)).acos(),
    ),
    "root below hard sigmoid": (
        "r = HardSigmoid <alpha = 0.5, beta = 0.5> (x)  d = Sub (one, r)  y = Sqrt (d)",
        lambda x: (1 - F.hardtanh(x * 0.5 + 0.5, 0.0, 1.0)).sqrt(),
    ),
    "huge times relu": (
        "r = Relu (x)  h = Mul (r, huge)  y = Mul (h, huge)",
        lambda x: (x.float().relu() * 1e30 * 1e30).double(),
    ),
    "root of pool": (
        """v = Reshape (x, image)  p = MaxPool <kernel_shape = [1, 2], strides = [1, 2]> (v)
           s = Sqrt (p)  u = Resize <mode = "nearest"> (s, , scales)  y = Reshape (u, six)""",
        lambda x: F.max_pool1d(x[None], 2).sqrt().repeat_interleave(2),
    ),
    "nothing of no number": (
        "m = Greater (x, half)  o = Mul (x, zero)  r = Where (m, x, o)  y = Sqrt (r)",
        lambda x: F.threshold(x, 0.5, 0).sqrt(),
    ),
}
_SEEDED = {
    "relu": ("y = Relu (x)", F.relu),
    "leaky relu without a slope": ("y = LeakyRelu <alpha = 0.0> (x)", F.relu),
    "hard swish": ("y = HardSwish (x)", F.hardswish),
    "clip": ("y = Clip (x, zero, one)", lambda x: x.clamp(0, 1)),
    "maximum": ("y = Max (x, zero)", lambda x: F.threshold(x, 0.0, 0.0) + x.clamp(0, 0) / 2),
    "maximum of three": ("y = Max (x, half, zero)", lambda x: x.clamp(min=0.5)),
    "shrink": ("y = Shrink <lambd = 0.5> (x)", F.hardshrink),
}
"""Operators that infinite gradients come to from outside."""


@pytest.mark.parametrize("name", [*GUARDED, *_SEEDED])
def test_zeros_stop_infinite_gradients(name: str):
    nodes, function = (GUARDED | _SEEDED)[name]
    seed = np.float32(np.inf if name in _SEEDED else 1.0)
    model = ir.from_onnx_text(f"""
        <ir_version: 10, opset_import: ["": 23]>
        g (float[6] x, float[6] dy) => (float[6] y)
        <float zero = {{0.0}}, float one = {{1.0}}, float half = {{0.5}},
         float huge = {{1e30}}, float[4] scales = {{1, 1, 1, 2}}, int64[4] image = {{1, 1, 1, 6}},
         int64[2] two = {{2, 3}}, int64[1] six = {{6}}, int64[1] last = {{1}}> {{ {nodes} }}
    """)
    infer(model)
    x, dy = model.graph.inputs
    gradient = differentiate(model, {model.graph.outputs[0]: dy}, [x])[x]
    model.graph.outputs[:] = [gradient]
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    numbers = np.array([-2, -0.0, 0.0, 0.5, 1, 4], np.float32)
    (actual,) = session.run(None, {"x": numbers, "dy": np.full(6, seed)})
    leaf = torch.tensor(numbers, dtype=torch.float64, requires_grad=True)
    made = function(leaf).reshape(6)
    (expected,) = torch.autograd.grad(made, leaf, torch.full_like(made, float(seed)))
    np.testing.assert_allclose(actual, expected.numpy(), rtol=2e-6)
