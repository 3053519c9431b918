"""The signature, optional inputs, and shapes given by the user."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import sambac
import sambarun
from sambac.errors import CompileError
from sambac.frontend import load
from sambac.input_specs import InputSpec
from sambac.options import CompileOptions

Make = Callable[..., onnx.ModelProto]


def options(**shapes: tuple[int, ...]) -> CompileOptions:
    return CompileOptions(inputs={name: InputSpec(shape) for name, shape in shapes.items()})


def test_old_models_list_their_weights_as_inputs(make: Make) -> None:
    source = load(make(ir_version=3, listed=True), options())
    assert source.signature.inputs == ("x",)
    assert [value.name for value in source.model.graph.inputs] == ["x"]
    assert "w" in source.model.graph.initializers


def test_since_then_they_are_optional_inputs(make: Make) -> None:
    source = load(make(ir_version=4, listed=True), options())
    assert source.signature.inputs == ("x", "w")
    assert np.array_equal(source.signature.defaults["w"].numpy(), np.ones((3, 4), np.float32))
    assert not source.model.graph.initializers


def two_inputs() -> onnx.ModelProto:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        "graph",
        [info("a", TensorProto.FLOAT, ["N", 3]), info("b", TensorProto.FLOAT, ["N", "M"])],
        [info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_symbol_is_fixed_in_every_input() -> None:
    inputs = load(two_inputs(), options(a=(5, 3))).model.graph.inputs
    assert [str(value.shape) for value in inputs] == ["[5,3]", "[5,M]"]


def test_without_shapes_symbols_stay() -> None:
    inputs = load(two_inputs(), options()).model.graph.inputs
    assert [str(value.shape) for value in inputs] == ["[N,3]", "[N,M]"]


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        ({"aa": (5, 3)}, "no input 'aa' (did you mean 'a'?)"),
        ({"image": (5, 3)}, "no input 'image'; its inputs are a, b"),
        ({"a": (5, 4)}, "has the shape Nx3, which 5x4 does not fit"),
        ({"a": (5, 3, 1)}, "has the shape Nx3, which 5x3x1 does not fit"),
        ({"a": (5, 3), "b": (6, 3)}, "makes the dimension 'N' 6, another input makes it 5"),
    ],
)
def test_conflicts(shapes: dict[str, tuple[int, ...]], says: str) -> None:
    with pytest.raises(CompileError) as caught:
        load(two_inputs(), options(**shapes))
    assert says in str(caught.value)


def test_sizes_below_zero() -> None:
    with pytest.raises(CompileError, match=r"shape\[0\] is -1; a tuple of sizes, such as \(1, 3\)"):
        InputSpec((-1, 3))


def test_all_conflicts_are_reported_at_once() -> None:
    with pytest.raises(CompileError, match=r"'aa'.*'bb'"):
        load(two_inputs(), options(aa=(1,), bb=(2,)))


def test_a_type_can_be_confirmed_but_not_changed() -> None:
    same = CompileOptions(inputs={"a": InputSpec((5, 3), TensorProto.FLOAT)})
    load(two_inputs(), same)
    other = CompileOptions(inputs={"a": InputSpec((5, 3), TensorProto.INT64)})
    with pytest.raises(CompileError, match="has the type float32, not int64"):
        load(two_inputs(), other)


_LOOP = """<ir_version: 8, opset_import: ["": 16]>
net (float[2] x, int64 trips) => (float[2] y) <bool go = {1}> {
  y = Loop<body = body (int64 i, bool c, float[2] state, float two) => (bool d, float[2] n)
    <float two = {2}> { d = Identity(c) n = Mul(state, two) }>(trips, go, x)
}"""


@pytest.mark.parametrize("declared", [True, False])
def test_what_a_body_lists_as_an_input_and_defines_is_a_constant(declared: bool) -> None:
    """So it was before IR version 4, and onnxruntime takes no other."""
    model = onnx.parser.parse_model(_LOOP)
    if not declared:
        model.graph.node[0].attribute[0].g.input[3].ClearField("type")
    executable = sambarun.load(sambac.compile(model))
    x = np.array([1, -2], np.float32)
    assert executable.run({"x": x, "trips": np.array(3)})["y"].tolist() == [8, -16]


_SCOPES = """<ir_version: 8, opset_import: ["": 16]>
net (float[2] x, bool c) => (float[2] y) {
  y = If<then_branch = one () => (float[2] r) <float k = {2}> { r = Mul(x, k) },
         else_branch = two () => (float[2] r) <float k = {3}> { r = Mul(x, k) }>(c)
}"""


@pytest.mark.parametrize("read", [lambda model: model, ir.serde.deserialize_model])
def test_a_model_given_from_memory_is_not_changed(read: Callable[..., onnx.ModelProto]) -> None:
    """Not even names of what is renamed: those in two scopes become unique."""
    message = onnx.parser.parse_model(_SCOPES)
    model, before = read(message), message.SerializeToString()
    programs = [sambac.compile(model) for _ in range(2)]
    assert message.SerializeToString() == before
    assert programs[0] == programs[1]


@pytest.mark.parametrize("declared", ["float[]", "float[n, 4]", "float[3, 4]"])
def test_an_input_that_is_an_output_has_the_shape_of_the_input(declared: str) -> None:
    model = onnx.parser.parse_model(f"""
        <ir_version: 10, opset_import: ["": 18]> g (float[3, 4] x) => (float[] y, {declared} x) {{
            y = Einsum <equation = "ij->ji"> (x)
        }}
    """)
    with sambarun.load(sambac.compile(model)) as executable:
        (port,) = executable.program.graphs[0].inputs
        assert executable.program.symbols[port.symbol].shape == (3, 4)


def test_an_input_that_is_an_output_has_one_type() -> None:
    model = onnx.parser.parse_model("""
        <ir_version: 10, opset_import: ["": 18]> g (float[3] x) => (float[3] y, int64[3] x) {
            y = Neg (x)
        }
    """)
    with pytest.raises(sambac.CompileError, match=r"'x' as tensor\(float\) among its inputs and "):
        sambac.compile(model)
