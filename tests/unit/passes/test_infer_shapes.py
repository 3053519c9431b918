"""What the inference of shapes asks of the ONNX library."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from near import assert_near

import sambac
import sambarun
from sambac.passes.legalize import infer_shapes

_STATIC = """
    <ir_version: 8, opset_import: ["": 20]>
    g (bool c, float[3000000] state, float rate, float[4] x) => (y, z) {
        y = Mul(state, rate)
        z = If (c) <
            then_branch = a () => (t) { t = Neg(x) },
            else_branch = b () => (e) { e = Abs(x) }
        >
    }
"""
_OF_VALUES = """
    <ir_version: 8, opset_import: ["": 20]>
    g (float[2, 3] x, float[6] v) => (y) { s = Shape(x)  y = Reshape(v, s) }
"""
_INSIDE = """
    <ir_version: 8, opset_import: ["": 20]>
    g (bool c, float[2, 3] x, float[6] v) => (y) {
        y = If (c) <
            then_branch = a () => (t) { s = Shape(x)  t = Reshape(v, s) },
            else_branch = b () => (e) { e = Neg(x) }
        >
    }
"""


_LONG_STATE = """
    <ir_version: 8, opset_import: ["": 20]>
    g (int64 trips, bool c, float[N] x) => (y) {
        y = Loop (trips, c, x) <body = b (int64 i, bool go, float[3000000] state) => (still, n) {
            still = Identity(go)  n = Neg(state)
        }>
    }
"""


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each time that the library is asked, whether it is to follow values."""
    asked: list[bool] = []
    library = onnx.shape_inference.infer_shapes

    def infer(
        proto: onnx.ModelProto, *, strict_mode: bool = False, data_prop: bool = False
    ) -> onnx.ModelProto:
        asked.append(data_prop)
        return library(proto, strict_mode=strict_mode, data_prop=data_prop)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    return asked


@pytest.mark.parametrize(
    ("text", "follows"), [(_STATIC, [False]), (_OF_VALUES, [False, True]), (_INSIDE, [False, True])]
)
def test_values_are_followed_only_where_shapes_come_of_them(
    text: str, follows: list[bool], asked: list[bool]
) -> None:
    """The library makes an object of every element of a vector whose values it follows."""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes.infer(model)
    assert asked == follows
    for value in model.graph.outputs:
        assert value.shape is not None
        assert value.shape.is_static()


def test_values_are_not_followed_through_long_states_of_loops(asked: list[bool]) -> None:
    infer_shapes.infer(ir.from_proto(onnx.parser.parse_model(_LONG_STATE)))
    assert asked == [False]


_NODES = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
_TARGETS = {
    "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [1.0, 2.0],
}  # fmt: skip
_CLASSES = {f"class{name[6:]}": value for name, value in _TARGETS.items()}


@pytest.mark.parametrize("version", [1, 3])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("TreeEnsembleRegressor", {"n_targets": 1, **_TARGETS}),
        ("TreeEnsembleClassifier", {"classlabels_int64s": [3, 4], **_CLASSES}),
        ("TreeEnsembleClassifier", {"classlabels_strings": ["a", "b", "c"], **_CLASSES}),
    ],
)
def test_trees_are_typed_without_their_nodes(
    op_type: str, attributes: dict, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library copies a message several times, and ensembles of trees are large."""
    outputs = ["y", "scores"][: 1 + (op_type == "TreeEnsembleClassifier")]
    node = onnx.helper.make_node(
        op_type, ["x"], outputs, domain="ai.onnx.ml", **_NODES, **attributes
    )
    port = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 2])
    empty = [onnx.helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", version)]
    graph = onnx.helper.make_graph([node], "g", [port], empty)
    whole = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    asked: list[int] = []
    library = onnx.shape_inference.infer_shapes

    def infer(proto: onnx.ModelProto, **settings: bool) -> onnx.ModelProto:
        asked.extend(
            len(attribute.floats) + len(attribute.ints)
            for attribute in proto.graph.node[0].attribute
            if not attribute.name.startswith("classlabels")
        )
        return library(proto, **settings)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", infer)
    found = ir.from_proto(whole)
    infer_shapes.infer(found)
    assert set(asked) == {0}
    told = {info.name: info.type for info in library(whole).graph.output}
    session = onnxruntime.InferenceSession(whole.SerializeToString())
    types = {each.name: each.type for each in session.get_outputs()}
    for value in found.graph.outputs:
        name = str(value.name)
        assert f"tensor({value.dtype.name.lower()})" == types[name]
        assert (value.shape is not None) == told[name].tensor_type.HasField("shape")
        if value.shape is not None:
            assert len(value.shape) == len(told[name].tensor_type.shape.dim)


@pytest.mark.parametrize("version", [18, 21, 23])
def test_shapes_behind_group_normalization(version: int) -> None:
    """The library knows nothing of it, and then nothing of what reads it."""
    parameters = 2 if version == 18 else 8
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": {version}]>
        g (float[2, 8, 5, 5] x, float[{parameters}] s, float[8, 1, 1] w) => (z) {{
            y = GroupNormalization <num_groups = 2> (x, s, s)
            p = AveragePool <kernel_shape = [2, 2]> (y)
            z = Mul(w, p)
        }}
        """
    )
    found = ir.from_proto(model)
    infer_shapes.infer(found)
    for node in found.graph:
        assert node.outputs[0].shape is not None
        assert node.outputs[0].dtype == ir.DataType.FLOAT
    assert found.graph.outputs[0].shape == ir.Shape((2, 8, 4, 4))
    group, *_ = found.graph
    assert (group.op_type, len(group.inputs), len(group.attributes)) == ("GroupNormalization", 3, 1)


def test_scores_of_attention_behind_another_domain() -> None:
    """The library calls them a scalar where it knows a type of the queries, but no shape."""
    model = ir.from_onnx_text("""
        <ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>
        g (float[2, 3, 5, 4] x) => (y, scores) {
            z = com.microsoft.QuickGelu (x)
            q = Concat <axis = 2> (x, z)
            y, keys, values, scores = Attention <qk_matmul_output_mode = 3> (q, q, q)
        }
    """)
    infer_shapes.infer(model)
    assert [list(value.shape or ()) for value in model.graph.outputs] == [
        [2, 3, 10, 4],
        [2, 3, 10, 10],
    ]


def test_what_is_resized_is_as_large_as_onnxruntime_makes_it() -> None:
    """Which multiplies in float32: 10 by 2.3 are 23, of which inference makes 22."""
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["": 18]>
        g (float[1,1,10,5] x) => (float[1,1,h,w] z)
        <float[4] a = {1, 1, 2.3, 2.6}, float[2] b = {1.1, 2.3}> {
            y = Resize<mode = "linear">(x, , a)
            u = Relu(y)
            z = Resize<mode = "nearest", axes = [3, 2]>(u, , b)
        }""")
    infer_shapes.infer(model)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = {"x": np.zeros((1, 1, 10, 5), np.float32)}
    assert session.run(None, feeds)[0].shape == tuple(model.graph.outputs[0].shape)
    assert tuple(model.graph[0].outputs[0].shape) == (1, 1, 23, 13)


_WINDOWS = [
    *({"ceil_mode": 1, "strides": [s], "pads": p} for s in (2, 3) for p in ([1, 1], [0, 1])),
    {"ceil_mode": 1, "strides": [3], "auto_pad": "VALID"},
    *({"auto_pad": f"SAME_{end}", "dilations": [2], "strides": [2]} for end in ("UPPER", "LOWER")),
    {"auto_pad": "SAME_LOWER", "dilations": [3], "ceil_mode": 1},
]


@pytest.mark.parametrize(
    ("op_type", "opset"), [("MaxPool", 11), ("AveragePool", 19), ("LpPool", 18)]
)
def test_windows_are_those_of_onnxruntime(op_type: str, opset: int) -> None:
    """Each pooling and one behind it, for which the other is the image."""
    make, nodes, names = onnx.helper, [], []
    for at, window in enumerate(_WINDOWS):
        for source, result in (("x", f"y{at}"), (f"y{at}", f"z{at}")):
            node = make.make_node(op_type, [source], [result], f"to_{result}", kernel_shape=[2])
            node.attribute.extend(make.make_attribute(*item) for item in window.items())
            nodes.append(node)
            names.append(result)
    outputs = [make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    inputs = [make.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 2, 11])]
    graph = make.make_graph(nodes, "g", inputs, outputs)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", opset)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    x = np.sin(np.arange(22, dtype=np.float32)).reshape(1, 2, 11)
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x})
    for name, expected in zip(names, plain, strict=True):
        assert_near(found[name], expected.astype(np.float64), what=name)


@pytest.mark.parametrize("mode", ["SAME_UPPER", "SAME_LOWER"])
def test_windows_with_gaps_over_blocks_of_channels(mode: str) -> None:
    """What computes on blocks is checked by an inference that finds 11 windows, and finds 8."""
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["": 18]>
        g (float[1, 8, 2, 11] x) => (y) {{
            y = MaxPool<kernel_shape = [1, 2], dilations = [1, 4], auto_pad = "{mode}">(x)
        }}""")
    x = np.sin(np.arange(176, dtype=np.float32)).reshape(1, 8, 2, 11)
    plain = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    assert plain[0].shape == (1, 8, 2, 8)
    with sambarun.load(sambac.compile(model)) as executable:
        assert np.array_equal(executable.run({"x": x})["y"], plain[0])


@pytest.mark.parametrize("step", [2**31, 2**32, 2**63 - 1, -(2**31) - 1, -(2**32), -(2**63)])
def test_steps_beyond_32_bits(step: int) -> None:
    """The library counts in 32 bits when it follows values: for ever, or out of memory."""
    model = onnx.parser.parse_model(
        f"""
        <ir_version: 8, opset_import: ["": 17]>
        g (float[N] x) => (y, z)
        <int64[1] s = {{{-(step < 0)}}}, int64[1] e = {{{2**40 if step > 0 else -(2**40)}}},
         int64[1] a = {{0}}, int64[1] k = {{{step}}}, int64[1] none = {{0}}> {{
            h = Shape(x)
            first = Slice(h, s, e, a, k)
            y = Expand(x, first)
            sum = Add(k, none)
            z = Slice(x, s, e, a, sum)
        }}
        """
    )
    x = np.arange(3, dtype=np.float32)
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": x})
    assert found["y"].tolist() == [0, 1, 2]
    assert found["z"].tolist() == [0 if step > 0 else 2]


def test_a_tensor_that_cannot_be_read_is_told() -> None:
    model = onnx.parser.parse_model(_OF_VALUES)
    numbers = onnx.numpy_helper.from_array(np.arange(2), "numbers")
    numbers.segment.begin = 1  # of a form that no library reads
    model.graph.initializer.append(numbers)
    with pytest.raises(sambac.CompileError, match="the initializer 'numbers' cannot be read: "):
        sambac.compile(model)


def test_bodies_have_constants_from_outside() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        main (float[2,7] first, float[5,2,7] rows) => (float[2,7] last, float[5,2,7] every)
        <int64[4] pads = {0, 1, 0, 0}, int64[1] axis = {1}, int64[1] start = {0},
         int64[1] end = {7}>
        {
            last, every = Scan <num_scan_inputs = 1, body = step (float[2,7] before, float[2,7] row)
                => (float[2,7] after, float[2,7] copied)
            {
                moved = Pad (before, pads)
                same = Slice (moved, start, end, axis)
                after = Add (same, row)
                copied = Identity (after)
            }> (first, rows)
        }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes.infer(model)
    assert [value.shape for value in model.graph.outputs] == [[2, 7], [5, 2, 7]]
    body = model.graph[0].attributes["body"].as_graph()
    assert [node.outputs[0].shape for node in body] == [[2, 8], [2, 7], [2, 7], [2, 7]]
    assert not body.initializers


def test_bodies_hide_constants_of_the_same_name() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]>
        main (float[2,3] x, int64[2] first) => (int64[2] last, float[3,m,n] every)
        <int64[2] sizes = {6, 1}, int64 count = {3}, bool yes = {1}>
        {
            last, every = Loop <body = step (int64 i, bool go, int64[2] sizes)
                => (bool on, int64[2] after, float[m,n] copied)
            {
                on = Identity (go)
                after = Identity (sizes)
                copied = If (go) <
                    then_branch = one () => (float[p,q] y) { y = Reshape (x, sizes) },
                    else_branch = two () => (float[r,s] z) { z = Reshape (x, sizes) }
                >
            }> (count, yes, first)
        }"""
    model = ir.from_proto(onnx.parser.parse_model(text))
    infer_shapes.infer(model)
    (body,) = (node.attributes["body"].as_graph() for node in model.graph)
    branch = body[2].attributes["then_branch"].as_graph()
    assert not any(isinstance(size, int) for size in branch[0].outputs[0].shape or ())
