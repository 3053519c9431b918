"""Dimensions without a size and without a name, in every spelling that exporters have for them."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

import sambac
import sambarun
from sambac.frontend import load
from sambac.input_specs import InputSpec
from sambac.options import CompileOptions

FLOAT = TensorProto.FLOAT
info = helper.make_tensor_value_info
UNNAMED = ["?", "-1", "-2", "None", "none", "null", "*", "", " ", -1, -7, -(2**63)]


def concatenation(dim: int | str) -> onnx.ModelProto:
    """Return y = concat(x, z) along an axis that is `dim` in both, beside one that is too."""
    node = helper.make_node("Concat", ["x", "z"], ["y"], axis=0)
    shape = [dim, 3, dim]
    ports = [info(name, FLOAT, shape) for name in ("x", "z")]
    graph = helper.make_graph([node], "g", ports, [info("y", FLOAT, shape)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dim", UNNAMED)
def test_they_are_open_and_tie_nothing(dim: int | str) -> None:
    source = load(concatenation(dim), CompileOptions())
    for value in (*source.model.graph.inputs, *source.model.graph.outputs):
        assert value.shape == ir.Shape([None, 3, None])
    with sambarun.load(sambac.compile(concatenation(dim))) as executable:
        x, z = np.ones((2, 3, 5), np.float32), np.zeros((4, 3, 5), np.float32)
        np.testing.assert_array_equal(executable.run({"x": x, "z": z})["y"], np.concatenate((x, z)))


@pytest.mark.parametrize("dim", UNNAMED)
def test_they_can_be_fixed_one_by_one(dim: int | str) -> None:
    shapes = {"x": (2, 3, 5), "z": (4, 3, 5)}
    options = CompileOptions(inputs={name: InputSpec(shape) for name, shape in shapes.items()})
    program = sambac.compile(concatenation(dim), options)
    found = {symbol.name: symbol.shape for symbol in program.symbols}
    assert found == {**shapes, "y": (6, 3, 5)}


@pytest.mark.parametrize("dim", ["n", "N", "batch_size", "-", "a?", "none_1", "1"])
def test_names_still_tie(dim: str) -> None:
    source = load(concatenation(dim), CompileOptions(inputs={"x": InputSpec((2, 3, 2))}))
    assert [str(size) for size in source.model.graph.inputs[1].shape] == ["2", "3", "2"]


@pytest.mark.parametrize("dim", ["?", -1])
def test_in_subgraphs_and_functions(dim: int | str) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Neg", ["s"], ["t"])],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("c", TensorProto.BOOL, []),
            info("s", FLOAT, [dim]),
        ],
        [info("d", TensorProto.BOOL, []), info("t", FLOAT, [dim])],
        value_info=[info("t", FLOAT, [dim])],
    )
    loop = helper.make_node("Loop", ["n", "", "x"], ["y"], body=body)
    call = helper.make_node("f", ["y"], ["z"], domain="own")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    negation = helper.make_node("Neg", ["a"], ["b"])
    function = helper.make_function(
        "own", "f", ["a"], ["b"], [negation], opsets[:1], value_info=[info("b", FLOAT, [dim])]
    )
    graph = helper.make_graph(
        [loop, call],
        "g",
        [info("n", TensorProto.INT64, []), info("x", FLOAT, [dim])],
        [info("z", FLOAT, [dim])],
        value_info=[info("y", FLOAT, [dim])],
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=[function], ir_version=10)
    loaded = load(model, CompileOptions()).model
    inner = loaded.graph[0].attributes["body"].as_graph()
    assert [inner.inputs[2].shape, inner.outputs[1].shape] == [ir.Shape([None])] * 2
    with sambarun.load(sambac.compile(model)) as executable:
        x = np.arange(3, dtype=np.float32)
        np.testing.assert_array_equal(executable.run({"n": np.int64(3), "x": x})["z"], x)
