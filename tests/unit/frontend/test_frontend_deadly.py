"""What would end the process, were it handed on to a library, is refused while it is loaded."""

from __future__ import annotations

from typing import Any

import onnx
import pytest

import sambac
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.options import CompileOptions
from sambac.passes.legalize.names_and_order import UniqueNames


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("ConvTranspose", {"group": 0}),
        ("Conv", {"group": -1}),
        ("Conv", {"strides": [1, 0]}),
        ("ConvTranspose", {"dilations": [0, 1]}),
        ("DeformConv", {"offset_group": 0}),
        ("MaxPool", {"kernel_shape": [0, 2]}),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [-1, 1]}),
        ("GroupNormalization", {"num_groups": 0}),
        ("Attention", {"q_num_heads": 0, "kv_num_heads": 1}),
        ("Attention", {"q_num_heads": 1, "kv_num_heads": 0}),
        ("Attention", {"q_num_heads": 1, "kv_num_heads": 2**62}),
        ("DepthToSpace", {"blocksize": 2**32}),
        ("SpaceToDepth", {"blocksize": 2**62}),
        ("Split", {"num_outputs": 2**31}),
    ],
)
def test_counts_out_of_range(op: str, attributes: dict[str, Any]) -> None:
    """Some kernels of onnxruntime divide by them, which ends the process."""
    inputs = [
        onnx.helper.make_tensor_value_info(f"x{at}", onnx.TensorProto.FLOAT, [1, 4, 4, 4])
        for at in range(3)
    ]
    node = onnx.helper.make_node(op, ["x0", "x1", "x2"], ["y"], name="n", **attributes)
    graph = onnx.helper.make_graph(
        [node], "g", inputs, [onnx.helper.make_empty_tensor_value_info("y")]
    )
    opsets = [onnx.helper.make_opsetid("", 23)]
    with pytest.raises(CompileError, match=rf"operator {op} 'n' has the attribute '\w+' of "):
        load(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=10), CompileOptions())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("s = SequenceConstruct(x) y = SequenceAt(s, none)", "SequenceAt.*a number from operand 1"),
        ("s = SequenceConstruct(x) t = SequenceErase(s, none) y = SequenceAt(t, one)", "operand 1"),
        (
            "s = SequenceConstruct(x) t = SequenceInsert(s, x, none) y = SequenceAt(t, one)",
            "operand 2",
        ),
        ("y = OneHot(one, none, v)", "OneHot.*operand 1, which has no elements"),
        (
            "y = Loop<body = b (int64 i, bool c, float[2] p) => (bool c, p) {}>(none, , x)",
            "Loop.*operand 0, which has no elements",
        ),
        ("y = STFT(x, one, , one)", "STFT.*needs 2 dimensions"),
        ("y = RandomUniformLike<low = 2.0, high = 1.0>(x)", "between low = 2.0 and high = 1.0"),
        ("y = RandomNormal<shape = [2], scale = 0.0>()", "scale is 0.0"),
        ("y = RandomNormalLike<scale = -1.0>(x)", "scale is -1.0"),
        ("y = Resize(x, , , many)", "operand 3 says 1025 sizes"),
        ("y = Reshape(x, many)", "operand 1 says 1025 sizes"),
        ("y = GRU<hidden_size = 1>(gone, w, w)", "operand 0 has no elements along axis 0"),
        ("y = GRU<hidden_size = 1>(flat, w, w)", "operand 0 has no elements along axis 2"),
        ("y = Attention(w, none4, none4)", "Attention.*operand 1 has no elements along axis -3"),
        ("y = com.microsoft.MultiHeadAttention<num_heads = 1>(flat)", "elements along axis -1"),
        ("y = com.microsoft.SkipLayerNormalization(w, gone, v)", "elements along axis 0"),
    ],
)
def test_what_would_end_the_process_is_refused(body: str, says: str) -> None:
    """onnxruntime reads behind the end of such operands, or stops on a failed assertion."""
    constants = "int64[0] none = {}, int64 one = {1}, float[2] v = {0, 1}, float[1,2] m = {0, 1}"
    ports = "float[2] x, int64[1025] many, float[1,3,2] w"
    ports += ", float[0,1,2] gone, float[2,1,0] flat, float[1,0,2,2] none4"
    graph = f"g ({ports}) => (float[n] y) <{constants}> {{{body}}}"
    text = f'<ir_version: 8, opset_import: ["": 23, "com.microsoft": 1]> {graph}'
    with pytest.raises(CompileError, match=f"(?s){says}"):
        load(onnx.parser.parse_model(text), CompileOptions())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("y = Conv(x, w)", "Conv .*: 'w'$"),
        ("y = QLinearConv(b, s, z, k, s, z, s, z)", "QLinearConv .*: 'b'$"),
        ("y = ConvInteger(b, k)", "ConvInteger .*: 'b'$"),
        ("y = DFT(x)", "DFT .*: 'x'$"),
        ("y = STFT(x, one, , one)", "STFT .*: 'x'$"),
        ("y = RoiAlign(x, w, i)", "RoiAlign .*: 'w'$.*RoiAlign .*: 'i'$"),
        ("y = ReverseSequence(x, one)", "ReverseSequence .*: 'x'$"),
        ("y = AffineGrid(x, i)", "AffineGrid .*: 'i'$"),
        ("y = GridSample(x, w)", "GridSample .*: 'w'$"),
        ('y = Einsum<equation = "ij->ji">(x)', "Einsum .*: 'x'$"),
        ("y = Concat<axis = 0>(x, v)", "Concat .*: 'x'$"),
        (
            """y = If<then_branch = a () => (p) { p = DFT(x) },
            else_branch = e () => (q) { q = Identity(x) }>(c)""",
            "DFT .*: 'x'$",
        ),
    ],
)
def test_what_has_no_rank_where_one_is_relied_on(body: str, said: str) -> None:
    """Given a scalar, or too few dimensions, onnxruntime ends the process."""
    constants = "float s = {1}, uint8 z = {0}, int64 one = {1}, uint8[1,2,1,1] k = {1, 2}"
    ports = "float x, float w, uint8 b, int64 i, bool c, float[2] v"
    graph = f"g ({ports}) => (float y) <{constants}> {{{body}}}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 20]> {graph}')
    for value in [*model.graph.input[:4], *model.graph.output]:
        value.type.tensor_type.ClearField("shape")
    if "ConvInteger" in body:
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT32
    if "QLinearConv" in body:
        model.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.UINT8
    with pytest.raises(CompileError, match=f"(?sm)number of dimensions is not known.*{said}"):
        sambac.compile(model)


def test_ranks_that_the_model_finds_itself_are_left_to_it() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[4] x, int64[r] s) => (float[8] y) { h = Reshape(x, s) y = Concat<axis = 0>(h, x) }"""
    program = sambac.compile(onnx.parser.parse_model(text))
    assert [port.name for port in program.graphs[0].outputs] == ["y"]


@pytest.mark.parametrize(
    ("operands", "condition", "ends"),
    [
        (", , x", "", False),
        (", go, x", "d = Identity(c)", False),
        (", , x", "d = Constant<value = bool {1}>()", False),
        ("n, , x", "d = Identity(c)", True),
        (", stop, x", "d = Identity(c)", True),
        (", , x", "d = Not(c)", True),
    ],
)
def test_loops_that_never_end(operands: str, condition: str, ends: bool) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64 n, bool stop) =>
    (float[2] y) <bool go = {{1}}> {{ y = Loop<body = b (int64 i, bool c, float[2] p) =>
    (bool {"d" if condition else "c"}, float[2] q)
    {{ {condition} q = Add(p, p) }}>({operands}) }}"""
    model = onnx.parser.parse_model(text)
    if ends:
        load(model, CompileOptions())
        return
    with pytest.raises(CompileError, match="Loop '' never ends: nothing counts its trips"):
        load(model, CompileOptions())


def test_a_constant_of_a_body_is_what_the_body_says_that_it_gives() -> None:
    text = """<ir_version: 8, opset_import: ["": 16]> g (float[2] x, int64 n) => (float[2] y)
    { y = Loop<body = b (int64 i, bool c, float[2] p) => (bool c, float[2] two)
    <float two = {2}> { q = Neg(p) }>(n, , x) }"""
    with pytest.raises(CompileError, match="constant 'two' is declared FLOAT 2 and holds FLOAT "):
        load(onnx.parser.parse_model(text), CompileOptions())


@pytest.mark.parametrize("body", ["y = Resize(x, , , s)", "t = Add(s, s) y = Reshape(x, t)"])
def test_a_vector_without_end(body: str) -> None:
    """onnxruntime follows each of its numbers, in case that it is a shape."""
    graph = f"g (float[2] x, int64[2147483648] s) => (float y) {{ {body} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 19]> {graph}')
    with pytest.raises(CompileError, match="'s' is a vector of more than 67108864 integers"):
        load(model, CompileOptions())


def test_what_a_function_is_told_is_not_known_before() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[2] x) => (float[2] y)
    { y = own.draw<most: float = 2.0>(x) }
    <domain: "own", opset_import: ["": 17]> draw <most> (a) => (b)
    { b = RandomUniformLike<high: float = @most>(a) }"""
    load(onnx.parser.parse_model(text), CompileOptions())


def test_a_split_has_no_more_outputs_than_parts() -> None:
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[6] x) => (float a, float b, float c)
    { a, b, c = Split <num_outputs = 2> (x) }"""
    with pytest.raises(CompileError, match="makes 2 parts, and has 3 outputs"):
        load(onnx.parser.parse_model(text), CompileOptions())


def test_outputs_of_any_number_are_all_made() -> None:
    """onnxruntime has no place for one without a name, and writes to it."""
    text = """<ir_version: 8, opset_import: ["": 18]> g (float[2, 7] x) => (float[2, 1] c)
    { a, b, c = Split <axis = 1, num_outputs = 3> (x) }"""
    model = onnx.parser.parse_model(text)
    model.graph.node[0].output[0] = model.graph.node[0].output[1] = ""
    graph = load(model, CompileOptions()).model
    UniqueNames()(graph)
    assert [value.name for value in graph.graph[0].outputs] == ["value", "value_1", "c"]
