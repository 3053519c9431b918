"""What the frontend refuses because no program could be made of it, with a sentence each."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sambac.errors import CompileError
from sambac.frontend import load
from sambac.input_specs import InputSpec
from sambac.options import CompileOptions

FLOAT = TensorProto.FLOAT
STRING = TensorProto.STRING
info = helper.make_tensor_value_info


def model(*nodes: onnx.NodeProto, **parts: list) -> onnx.ModelProto:
    """Return a model of x: float32[N, 3], y and `nodes`."""
    graph = helper.make_graph(
        nodes or [helper.make_node("Neg", ["x"], ["y"])],
        "graph",
        [info("x", FLOAT, ["N", 3]), *parts.get("inputs", [])],
        parts.get("outputs", [info("y", FLOAT, None)]),
        parts.get("initializers", []),
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def with_default(shape: list | None, default: np.ndarray) -> onnx.ModelProto:
    """Return a model with an optional input w of `shape`."""
    add = helper.make_node("Add", ["x", "w"], ["y"])
    initializers = [numpy_helper.from_array(default, "w")]
    return model(add, inputs=[info("w", FLOAT, shape)], initializers=initializers)


def listed(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let the input w of `model` be a sequence."""
    declared = next(each for each in model.graph.input if each.name == "w").type
    tensor = helper.make_tensor_type_proto(FLOAT, [2, 3])
    declared.CopyFrom(helper.make_sequence_type_proto(tensor))
    return model


def unfinished_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Cast", ["i"], ["s"], to=1)],
        "body",
        [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, [])],
        [info("d", TensorProto.BOOL, []), info("s", FLOAT, [])],
    )
    loop = helper.make_node("Loop", ["n"], ["y"], name="loop", body=body)
    return model(loop, inputs=[info("n", TensorProto.INT64, [])])


def strings(name: str, text: bytes) -> onnx.TensorProto:
    return helper.make_tensor(name, STRING, [1], [text])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: model(inputs=[info("x", FLOAT, [1])]), "2 inputs are named 'x'"),
        (lambda: model(helper.make_node("Add", ["x"], ["y"])), "Add '' needs 2 inputs and has 1"),
        (unfinished_loop, "Loop 'loop' needs 2 inputs and has 1"),
        (
            lambda: with_default(["N", 4], np.ones((2, 3), np.float32)),
            "input 'w' has a default of 2x3, which its shape Nx4 does not fit",
        ),
        (
            lambda: with_default([None], np.ones((2, 3), np.float32)),
            "input 'w' has a default of 2x3, which its shape ? does not fit",
        ),
        (
            lambda: with_default(["N", 3], np.ones((2, 3), np.int64)),
            "input 'w' is a tensor of FLOAT and has a default of INT64",
        ),
        (
            lambda: listed(with_default([2, 3], np.ones((2, 3), np.float32))),
            "input 'w' is no tensor (Sequence(Tensor(FLOAT))) and has a tensor as its default",
        ),
        (
            lambda: with_default([1, 3], np.ones((2, 3), np.float32)),
            "input 'w' has a default of 2x3, which its shape 1x3 does not fit",
        ),
        (
            lambda: model(inputs=[info("s", STRING, [1])], initializers=[strings("s", b"\xff")]),
            "input 's' has strings as its default that are not UTF-8",
        ),
        (
            lambda: model(inputs=[info("u", FLOAT, [1 << 40, 1 << 20])]),
            "input 'u' has 1,152,921,504,606,846,976 elements or more",
        ),
    ],
)
def test_what_cannot_be_compiled(make: Callable[[], onnx.ModelProto], says: str) -> None:
    with pytest.raises(CompileError) as caught:
        load(make(), CompileOptions())
    assert says in str(caught.value)


@pytest.mark.parametrize("rows", [2**63 - 1, 10**20])
def test_sizes_beyond_any_memory(rows: int) -> None:
    with pytest.raises(CompileError, match="elements or more, which is beyond any memory"):
        load(model(), CompileOptions(inputs={"x": InputSpec((rows, 3))}))


def test_a_fixed_shape_admits_the_default() -> None:
    options = CompileOptions(inputs={"w": InputSpec((2, 3)), "x": InputSpec((2, 3))})
    source = load(with_default(["N", 3], np.ones((2, 3), np.float32)), options)
    assert set(source.signature.defaults) == {"w"}


def test_unknown_element_types() -> None:
    with pytest.raises(CompileError, match="cannot have the unknown element type 99"):
        load(model(), CompileOptions(inputs={"x": InputSpec((2, 3), 99)}))


@pytest.mark.parametrize("chosen", [{"level": "O7"}, {"mapping": "sideways"}])
def test_options_that_do_not_exist(chosen: dict) -> None:
    with pytest.raises(CompileError, match=r"There is no .* choose .* or "):
        CompileOptions(**chosen)


def declared_constant(shape: list, version: int = 3) -> onnx.ModelProto:
    """Return a model of an IR version in which constants are listed among the inputs."""
    proto = with_default(shape, np.ones((1, 3), np.float32))
    proto.ir_version = version
    return proto


def test_a_constant_has_the_shape_of_its_content() -> None:
    source = load(declared_constant(["M", 3]), CompileOptions())
    constant = source.model.graph.initializers["w"]
    assert constant.shape is not None
    assert constant.shape.dims == (1, 3)


def test_a_constant_fits_its_declaration() -> None:
    with pytest.raises(CompileError, match="constant 'w' is declared FLOAT 7x3 and holds FLOAT"):
        load(declared_constant([7, 3]), CompileOptions())


def with_function(reads: str, version: int = 17) -> onnx.ModelProto:
    function = helper.make_function(
        "local",
        "f",
        ["a"],
        ["r"],
        [helper.make_node("Relu", [reads], ["r"])],
        [helper.make_opsetid("", version)],
    )
    proto = model(helper.make_node("f", ["x"], ["y"], domain="local"))
    proto.opset_import.add(domain="local", version=1)
    proto.functions.append(function)
    return proto


def listed_constant() -> onnx.ModelProto:
    proto = with_default([2, 3], np.ones((2, 3), np.float32))
    proto.graph.initializer[0].ClearField("raw_data")
    proto.graph.initializer[0].float_data.extend([1.0] * 5)
    return proto


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: with_function("b"), "function 'f' reads 'b', which it lacks"),
        (lambda: with_function("a", 0), "operator set '' has the version 0"),
        (listed_constant, "constant 'w' does not hold the elements that its shape and type need"),
    ],
)
def test_damage_in_functions_and_lists(make: Callable[[], onnx.ModelProto], says: str) -> None:
    with pytest.raises(CompileError) as caught:
        load(make(), CompileOptions())
    assert says in str(caught.value)


def short_constant() -> onnx.ModelProto:
    proto = with_default([2, 3], np.ones((2, 3), np.float32))
    proto.graph.initializer[0].raw_data = bytes(20)
    return proto


def odd_sparse_constant() -> onnx.ModelProto:
    values = helper.make_tensor("w", FLOAT, [1], [1.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [1], [99])
    proto = model(helper.make_node("Add", ["x", "w"], ["y"]))
    proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    return proto


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (short_constant, "constant 'w' holds 20 bytes; its shape and type need 24"),
        (odd_sparse_constant, "graph is not a valid ONNX model: index 99 is out of bounds"),
    ],
)
def test_damaged_constants(make: Callable[[], onnx.ModelProto], says: str) -> None:
    with pytest.raises(CompileError, match=says):
        load(make(), CompileOptions())


def test_an_operator_set_whose_name_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString().replace(b"ai.onnx.ml", b"ai.onnx.\xff\xfe"))
    with pytest.raises(CompileError, match=r"the name of an operator set, .* is no text"):
        load(path, CompileOptions())


@pytest.mark.parametrize("field", ["name", "documentation", "told by"])
def test_what_is_said_of_an_operator_and_is_no_text(tmp_path: Path, field: str) -> None:
    made, mark = model(), "remarkable text"
    node = made.graph.node[0]
    if field == "name":
        node.name = mark
    elif field == "documentation":
        node.doc_string = mark
    else:
        node.metadata_props.add(key=field, value=mark)
    path = tmp_path / "m.onnx"
    path.write_bytes(made.SerializeToString().replace(b"remarkable", b"remarkab\xff\xfe"))
    with pytest.raises(CompileError, match=rf"the '{field}' of an operator \w+ is no text"):
        load(path, CompileOptions())


def test_bare_shapes() -> None:
    with pytest.raises(CompileError, match=r"Input 'x' is given .*; give InputSpec\(\(2, 3\)\)"):
        CompileOptions(inputs={"x": (2, 3)})
    with pytest.raises(CompileError, match=r"Input 'x' is given 3; give InputSpec\(\(8, 3\)\)"):
        CompileOptions(inputs={"x": 3})  # type: ignore[dict-item]


@pytest.mark.parametrize("value", ["a", 0.5])
def test_an_attribute_of_later_versions_may_be_of_any_type(value: object) -> None:
    """No schema says what it is."""
    node = helper.make_node("GatherND", ["x", "x"], ["y"], batch_dims=value)
    graph = helper.make_graph(
        [node], "g", [info("x", TensorProto.INT64, [1])], [info("y", TensorProto.INT64, [1])]
    )
    opsets = [helper.make_opsetid("", 11)]
    source = load(helper.make_model(graph, opset_imports=opsets, ir_version=8), CompileOptions())
    assert source.model.graph[0].attributes["batch_dims"].value == value


def attribute(node: onnx.NodeProto, name: str, **changed: object) -> onnx.NodeProto:
    """Return `node` with other fields of its attribute `name`."""
    found = next(item for item in node.attribute if item.name == name)
    kept = onnx.AttributeProto(name=name)
    found.CopyFrom(kept)
    for field, value in changed.items():
        if isinstance(value, list):
            getattr(found, field).extend(value)
        elif isinstance(value, onnx.TensorProto):
            getattr(found, field).CopyFrom(value)
        else:
            setattr(found, field, value)
    return node


def transpose(**changed: object) -> onnx.ModelProto:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    return model(attribute(node, "perm", **changed))


def constant(tensor: onnx.TensorProto) -> onnx.ModelProto:
    value = numpy_helper.from_array(np.zeros(3, np.float32))
    node = helper.make_node("Constant", [], ["c"], value=value)
    attribute(node, "value", type=onnx.AttributeProto.TENSOR, t=tensor)
    return model(node, helper.make_node("Add", ["x", "c"], ["y"]))


def sparse_elsewhere() -> onnx.ModelProto:
    proto = odd_sparse_constant()
    values = proto.graph.sparse_initializer[0].values
    values.ClearField("float_data")
    values.data_location = TensorProto.EXTERNAL
    values.external_data.add(key="location", value="/etc/hostname")
    return proto


def huge_sparse(*dims: int) -> onnx.ModelProto:
    proto = odd_sparse_constant()
    proto.graph.sparse_initializer[0].dims[:] = dims
    return proto


INTS, FLOATS = onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS
GRAPH = onnx.AttributeProto.GRAPH


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: transpose(type=FLOATS, floats=[1.0, 0.0]),
            "Transpose '' has the attribute 'perm' of type FLOATS; it has to be INTS",
        ),
        (
            lambda: transpose(type=INTS, ref_attr_name="p"),
            "has an attribute 'perm' that stands for a parameter, and is in no function",
        ),
        (
            lambda: model(helper.make_node("Neg", [""], ["y"])),
            "operator Neg '' lacks its first input",
        ),
        (
            lambda: model(helper.make_node("Cast", ["x"], ["y"])),
            "operator Cast '' lacks the attribute 'to'",
        ),
        (
            lambda: model(helper.make_node("GatherND", ["x", "x"], ["y"], batch_dims=-2)),
            "has the attribute 'batch_dims' of -2",
        ),
        (
            lambda: model(helper.make_node("LayerNormalization", ["x", "x"], ["y"], axis=2**31)),
            "has the attribute 'axis' of 2147483648",
        ),
        (
            lambda: model(helper.make_node("Gemm", ["x", "x"], ["y"], transB=100)),
            "operator Gemm '' has the attribute 'transB' of 100; it has to be 0 or 1",
        ),
        (
            lambda: model(helper.make_node("ReduceSum", ["x"], ["y"], keepdims=-1)),
            "has the attribute 'keepdims' of -1; it has to be 0 or 1",
        ),
        (
            lambda: model(
                helper.make_node("Constant", [], ["c"], value_int=1, value_float=1.0),
                helper.make_node("OneHot", ["x", "c", "x"], ["y"]),
            ),
            "operator Constant '' has 2 attributes; it has to have one, which is its value",
        ),
        (
            lambda: model(helper.make_node("ScatterND", ["x", "x", "x"], ["y"], reduction="ad")),
            "'reduction' of 'ad'; it has to be none or add or mul or min or max",
        ),
        (
            lambda: model(
                attribute(unfinished_loop().graph.node[0], "body", type=GRAPH, ref_attr_name="p")
            ),
            "the attribute 'body' of operator Loop 'loop' holds no graph",
        ),
        (
            lambda: model(helper.make_node("MatMul", ["x", "x", "x"], ["y"])),
            "operator MatMul '' takes 2 inputs and has 3",
        ),
        (
            lambda: model(helper.make_node("Neg", ["x"], ["y", "z"])),
            "operator Neg '' has 1 outputs, 2 are named",
        ),
        (lambda: model(inputs=[info("", FLOAT, [1])]), "an input has no name"),
        (
            lambda: constant(TensorProto(data_type=0, dims=[3])),
            "attribute 'value' of Constant '' has no known type",
        ),
        (
            lambda: constant(TensorProto(data_type=77, dims=[3])),
            "attribute 'value' of Constant '' has no known type",
        ),
        (
            lambda: constant(TensorProto(data_type=FLOAT, dims=[3], raw_data=bytes(8))),
            "attribute 'value' of Constant '' holds 8 bytes; its shape and type need 12",
        ),
        (
            lambda: constant(TensorProto(data_type=STRING, dims=[3], string_data=[b"a"])),
            "attribute 'value' of Constant '' does not hold the elements",
        ),
        (lambda: constant(TensorProto(data_type=FLOAT, dims=[-3])), r"has the shape \[-3\]"),
        (lambda: with_function("a", 2**40), "operator set '' has the version 1099511627776"),
        (sparse_elsewhere, "the sparse constant 'w' lies in another file"),
        (lambda: huge_sparse(-2, 3), r"the sparse constant 'w' has the sizes \[-2, 3\]"),
        (lambda: huge_sparse(2**31, 2**31), "the sparse constant 'w' has the sizes"),
    ],
)
def test_what_would_make_others_stumble(make: Callable[[], onnx.ModelProto], says: str) -> None:
    """The ONNX library and onnxruntime end the process with some of these."""
    with pytest.raises(CompileError, match=says):
        load(make(), CompileOptions())
