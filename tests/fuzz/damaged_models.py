"""Small models of many kinds, for the mutator to damage: each sound, each compiled in a moment.

`TEXTS` holds most of them as ONNX text; what the text cannot say is built from messages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from random_graphs import random_model

TEXTS: Mapping[str, str] = {
    "mlp": """<ir_version: 8, opset_import: ["": 17]>
net (float["n", 3] x, float[3, 4] w, float[4] b) => (float["n", 4] y)
<float[3, 4] w = {1,2,3,4,5,6,7,8,9,10,11,12}, float[4] b = {1,2,3,4}> {
  h = Gemm<alpha: float = 1.0, beta: float = 0.5>(x, w, b)
  r = Relu(h)
  y = Softmax<axis: int = 1>(r)
}""",
    "cnn": """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 1, 6, 6] x) => (float[1, 2] y)
<float[2, 1, 3, 3] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8,9}, float[2] s = {1,2},
 float[2] z = {0,0}> {
  c = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1], strides = [1, 1], group = 1>(x, w)
  n = BatchNormalization<epsilon: float = 0.00001>(c, s, z, z, s)
  r = Relu(n)
  p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r)
  g = GlobalAveragePool(p)
  y = Flatten<axis = 1>(g)
}""",
    "upsampling": """<ir_version: 8, opset_import: ["": 13]>
net (float[1, 2, 3, 3] x) => (float[1, 2, 8, 8] y)
<float[2, 2, 2, 2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, float[4] scales = {1,1,2,2},
 int64[8] pads = {0,0,-2,-2,0,0,-2,-2}> {
  c = ConvTranspose<strides = [2, 2], output_padding = [0, 0]>(x, w)
  e = Resize<mode = "linear", coordinate_transformation_mode = "half_pixel">(c, , scales)
  d = Pad<mode = "constant">(e, pads)
  y = DepthToSpace<blocksize = 1>(d)
}""",
    "attention": """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 4, 8] x, bool[1, 1, 4, 4] mask) => (float[1, 4, 8] y)
<float[8] g = {1,1,1,1,1,1,1,1}, int64[4] heads = {0, 0, 2, 4}, int64[3] flat = {0, 0, 8},
 float low = {-10000}, float scale = {0.5}> {
  h = Reshape(x, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(h)
  k = Transpose<perm = [0, 2, 3, 1]>(h)
  s = MatMul(q, k)
  t = Mul(s, scale)
  m = Where(mask, t, low)
  p = Softmax<axis = -1>(m)
  a = MatMul(p, q)
  b = Transpose<perm = [0, 2, 1, 3]>(a)
  f = Reshape(b, flat)
  z = Add(f, x)
  y = LayerNormalization<axis = -1>(z, g)
}""",
    "recurrent": """<ir_version: 8, opset_import: ["": 14]>
net (float[3, 1, 2] x, int32[1] lens) => (float[3, 1, 2] y, float[1, 1, 2] last)
<float[1, 8, 2] w = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8},
 float[1, 8, 2] r = {1,2,3,4,5,6,7,8,1,2,3,4,5,6,7,8}, int64[1] one = {1},
 float[1, 6, 2] gw = {1,2,3,4,5,6,7,8,1,2,3,4}, float[1, 6, 2] gr = {1,2,3,4,5,6,7,8,1,2,3,4}> {
  a, h, c = LSTM<hidden_size = 2, direction = "forward">(x, w, r, , lens)
  s = Squeeze(a, one)
  y, last = GRU<hidden_size = 2, linear_before_reset = 1>(s, gw, gr)
}""",
    "loop": """<ir_version: 8, opset_import: ["": 16]>
net (float[2] x, int64 trips) => (float[2] y, float["t", 2] all)
<bool go = {1}> {
  y, all = Loop<body = body (int64 i, bool c, float[2] state) => (bool d, float[2] n, float[2] o)
    <float two = {2}> { d = Identity(c) n = Mul(state, two) o = Add(n, x) }>(trips, go, x)
}""",
    "branches": """<ir_version: 8, opset_import: ["": 16]>
net (float[2] x, bool c) => (float["k"] y) {
  y = If<then_branch = a () => (float[2] p) { p = Neg(x) },
         else_branch = b () => (float["k"] q) { o = Abs(x) q = Concat<axis = 0>(o, x) }>(c)
}""",
    "scan": """<ir_version: 8, opset_import: ["": 16]>
net (float[2] s, float[3, 2] xs) => (float[2] e, float[3, 2] ys) {
  e, ys = Scan<num_scan_inputs = 1, scan_input_axes = [0], body = b (float[2] p, float[2] v) =>
    (float[2] q, float[2] o) { q = Add(p, v) o = Tanh(q) }>(s, xs)
}""",
    "functions": """<ir_version: 9, opset_import: ["": 17, "own": 1]>
net (float[2, 3] x) => (float[2, 3] y) {
  h = own.twice <axis: int = 1>(x)
  y = own.outer (h)
}
<domain: "own", opset_import: ["": 17]>
twice <axis> (a) => (c) { b = Softmax<axis: int = @axis>(a) c = Add(b, b) }
<domain: "own", opset_import: ["": 17, "own": 1]>
outer (a) => (b) { c = own.twice <axis: int = 0>(a) b = Relu(c) }""",
    "sequences": """<ir_version: 8, opset_import: ["": 17]>
net (float[2] x, float[2] z) => (float["k"] y, int64 n) <int64 at = {0}> {
  s = SequenceConstruct(x, z)
  t = SequenceInsert(s, x, at)
  e = SequenceAt(t, at)
  c = ConcatFromSequence<axis = 0>(t)
  n = SequenceLength(t)
  o = Optional(e)
  g = OptionalGetElement(o)
  y = Concat<axis = 0>(c, g)
}""",
    "first_opsets": """<ir_version: 3, opset_import: ["": 4]>
net (float[2, 3, 4] x, float[4] b) => (float[2, 3, 4] y) {
  s = Add<broadcast = 1, axis = 2>(x, b)
  r = Reshape<shape = [2, 12]>(s)
  t = Softmax<axis = 1>(r)
  u = Reshape<shape = [2, 3, 4]>(t)
  y = Dropout<is_test = 1, ratio = 0.5>(u)
}""",
    "opset_nine": """<ir_version: 4, opset_import: ["": 9]>
net (float[1, 2, 4] x) => (float[1, 2, 6] y) <float[3] k = {1, 1, 2}> {
  s = Slice<starts = [0, 1], ends = [9, 3], axes = [1, 2]>(x)
  p = Pad<mode = "reflect", pads = [0, 0, 0, 0, 0, 1]>(s)
  c = Clip<min = 0.0, max = 6.0>(p)
  q = Unsqueeze<axes = [0]>(c)
  e = Squeeze<axes = [0]>(q)
  y = Upsample<mode = "nearest">(e, k)
}""",
    "quantized": """<ir_version: 8, opset_import: ["": 13]>
net (float[1, 2, 4, 4] x) => (float[1, 1, 4, 4] y)
<int8[1, 2, 1, 1] w = {3, -4}, float s = {0.1}, uint8 z = {128}, int8 o = {0}> {
  q = QuantizeLinear(x, s, z)
  c = QLinearConv(q, s, z, w, s, o, s, z)
  d = DequantizeLinear(c, s, z)
  i = ConvInteger(q, w, z, o)
  f = Cast<to = 1>(i)
  y = Add(d, f)
}""",
    "detection": """<ir_version: 8, opset_import: ["": 13]>
net (float[1, 6, 4] boxes, float[1, 2, 6] scores) => (int64["m", 3] y, float[1, 2, 3] best)
<int64 most = {3}, float iou = {0.5}, int64[1] k = {3}> {
  y = NonMaxSuppression<center_point_box = 0>(boxes, scores, most, iou)
  best, at = TopK<axis = -1, largest = 1, sorted = 1>(scores, k)
}""",
    "strings": """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 2]>
net (string[3] x) => (int64[3] y, string["k"] z) {
  z = StringNormalizer<case_change_action = "LOWER", stopwords = ["monday"]>(x)
  y = ai.onnx.ml.LabelEncoder<keys_strings = ["a", "b"], values_int64s = [1, 2],
    default_int64 = -1>(x)
}""",
    "trees": """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
net (float["n", 2] x) => (float["n", 1] y, int64["n"] label) {
  s = ai.onnx.ml.Scaler<offset = [0.5, 0.5], scale = [2.0, 2.0]>(x)
  y = ai.onnx.ml.TreeEnsembleRegressor<n_targets = 1, nodes_treeids = [0, 0, 0],
    nodes_nodeids = [0, 1, 2], nodes_featureids = [1, 0, 0], nodes_values = [0.5, 0.0, 0.0],
    nodes_modes = ["BRANCH_LEQ", "LEAF", "LEAF"], nodes_truenodeids = [1, 0, 0],
    nodes_falsenodeids = [2, 0, 0], target_treeids = [0, 0], target_nodeids = [1, 2],
    target_ids = [0, 0], target_weights = [1.0, 2.0]>(s)
  label, p = ai.onnx.ml.LinearClassifier<coefficients = [1.0, 2.0, 3.0, 4.0],
    intercepts = [0.0, 1.0], classlabels_ints = [0, 1], post_transform = "SOFTMAX">(s)
}""",
    "contrib": """<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
net (float[1, 2, 4] x, float[1, 2, 4] z) => (float[1, 2, 4] y)
<float[4] g = {1, 1, 1, 1}, float[4, 4] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7}> {
  s = com.microsoft.SkipLayerNormalization<epsilon: float = 0.001>(x, z, g)
  m = com.microsoft.FusedMatMul<transB = 1, alpha = 0.5>(s, w)
  y = com.microsoft.Gelu(m)
}""",
    "shapes": """<ir_version: 8, opset_import: ["": 15]>
net (float["b", "t", 4] x) => (float["b", "r"] y, int64["b", "t"] m)
<int64 i = {0}, int64[1] a = {0}, int64[1] rest = {-1}, int64 v = {1}> {
  s = Shape(x)
  b = Gather<axis = 0>(s, i)
  u = Unsqueeze(b, a)
  t = Concat<axis = 0>(u, rest)
  y = Reshape(x, t)
  k = Slice(s, a, rest)
  e = ConstantOfShape<value = int64[1] {1}>(k)
  m = CumSum(e, v)
}""",
    "indices": """<ir_version: 8, opset_import: ["": 16]>
net (float[3, 4] x, int64[2, 1] i) => (float[3, 4] y, float[2, 4, 3] o, float[3] e)
<float[2, 4] u = {1,2,3,4,5,6,7,8}, int64 d = {3}, float[2] v = {0, 1}> {
  y = ScatterND<reduction = "add">(x, i, u)
  g = GatherND<batch_dims = 0>(y, i)
  h = OneHot<axis = -1>(i, d, v)
  q = Einsum<equation = "ab,cd->cad">(g, x)
  t = Transpose<perm = [1, 2, 0]>(q)
  o = Identity(t)
  z = ArgMax<axis = 1, keepdims = 0>(x)
  e = Cast<to = 1>(z)
}""",
    "folding": """<ir_version: 8, opset_import: ["": 17]>
net (float[4] x) => (float[4] y, float[2, 2] f)
<int64 a = {0}, int64 b = {4}, int64 c = {1}, int64[1] r = {2}, int64[2] s = {2, 2}> {
  n = Range(a, b, c)
  t = Tile(n, r)
  k = Constant<value = float[2, 2] {1, 2, 3, 4}>()
  p, q = Split<axis = 0>(t)
  w = Cast<to = 1>(p)
  y = Add(x, w)
  e = Expand(k, s)
  f = Pow(e, k)
}""",
    "spectrum": """<ir_version: 8, opset_import: ["": 17]>
net (float[1, 8, 1] x) => (float[1, 8, 2] y, float[8] h)
<int64 n = {8}> {
  h = HannWindow<periodic = 1>(n)
  y = DFT<axis = 1, onesided = 0>(x)
}""",
    "reductions": """<ir_version: 8, opset_import: ["": 18]>
net (float16[2, 3, 4] x) => (float[2, 1, 4] y, float16[4] z)
<int64[1] axes = {1}, int64[2] both = {0, 1}> {
  c = Cast<to = 1>(x)
  m = ReduceMean<keepdims = 1>(c, axes)
  l = ReduceLogSumExp<keepdims = 1>(c, axes)
  y = Sub(m, l)
  z = ReduceMax<keepdims = 0, noop_with_empty_axes = 1>(x, both)
}""",
    "loss": """<ir_version: 8, opset_import: ["": 17]>
net (float[4, 3] x, int64[4] labels) => (float loss)
<float[3, 5] w = {1,2,3,4,5,6,7,8,9,1,2,3,4,5,6}, float[5] b = {1,2,3,4,5}> {
  h = MatMul(x, w)
  a = Add(h, b)
  d = Dropout(a)
  g = Elu<alpha = 0.5>(d)
  loss = SoftmaxCrossEntropyLoss<reduction = "mean", ignore_index = -100>(g, labels)
}""",
}


def random_one() -> onnx.ModelProto:
    return random_model(11, 12)


def with_sparse_weights() -> onnx.ModelProto:
    """A sparse initializer, a sparse Constant, and a default of an input."""
    info = helper.make_tensor_value_info
    values = numpy_helper.from_array(np.array([1, 2], np.float32), "w")
    indices = numpy_helper.from_array(np.array([0, 3], np.int64), "i")
    weight = helper.make_sparse_tensor(values, indices, [2, 2])
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Constant", [], ["c"], sparse_value=weight),
        helper.make_node("Add", ["m", "c"], ["a"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    ports = [info("x", TensorProto.FLOAT, [None, 2]), info("b", TensorProto.FLOAT, [2])]
    graph = helper.make_graph(
        nodes, "net", ports, [info("y", TensorProto.FLOAT, [None, 2])],
        [numpy_helper.from_array(np.ones(2, np.float32), "b")],
    )  # fmt: skip
    graph.sparse_initializer.append(weight)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def with_maps() -> onnx.ModelProto:
    """A map goes in, sequences of maps come out."""
    map_type = helper.make_map_type_proto(
        TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    )
    probabilities = helper.make_sequence_type_proto(map_type)
    info = helper.make_tensor_value_info
    nodes = [
        helper.make_node(
            "DictVectorizer", ["d"], ["x"], domain="ai.onnx.ml", int64_vocabulary=[3, 4]
        ),
        helper.make_node(
            "ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]
        ),
    ]  # fmt: skip
    graph = helper.make_graph(
        nodes, "net", [helper.make_value_info("d", map_type)],
        [helper.make_value_info("y", probabilities), info("x", TensorProto.FLOAT, [1, 2])],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


_BUILT: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "random": random_one,
    "sparse": with_sparse_weights,
    "maps": with_maps,
}
NAMES: tuple[str, ...] = (*TEXTS, *_BUILT)


def sound_model(name: str) -> onnx.ModelProto:
    """Return the model `name`, undamaged."""
    return _BUILT[name]() if name in _BUILT else onnx.parser.parse_model(TEXTS[name])
