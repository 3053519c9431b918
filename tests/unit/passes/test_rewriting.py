"""What the rewriting passes share: constants, fills, names, origins, redirection."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from sambac.graph.constants import is_uniform
from sambac.graph.editor import Editor
from sambac.graph.nodes import redirect
from sambac.graph.origins import noted_origins, origins
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.rewriting import combine, constant, derived_name

TEXT = """
<ir_version: 8, opset_import: ["" : 13]>
g (bool c, float[4] x) => (float[4] y, float[4] z)
<float[4] w = {1, 2, 3, 4}, int64[1] shape = {1000000}>
{
   a = Relu (x)
   b = Exp (x)
   f = ConstantOfShape <value: tensor = float[1] {0.5}> (shape)
   y = If (c) <then_branch = t () => (float[4] p) { p = Mul (a, w) },
               else_branch = e () => (float[4] q) { q = Neg (b) }>
   z = Neg (x)
}
"""


@pytest.fixture
def model() -> ir.Model:
    made = ir.from_onnx_text(TEXT)
    for index, node in enumerate(made.graph.all_nodes()):
        node.name = f"n{index}"
    InferShapes()(made)
    return made


def value(model: ir.Model, name: str) -> ir.Value:
    found = {out.name: out for node in model.graph.all_nodes() for out in node.outputs}
    return found[name]


def test_a_fill_is_read_without_its_bytes(model: ir.Model) -> None:
    array = constant(value(model, "f"))
    assert array is not None
    assert array.shape == (1_000_000,)
    assert is_uniform(array)
    doubled = combine(lambda item: item * 2, array)
    assert is_uniform(doubled)
    assert doubled[123_456] == 1


def test_a_fill_combined_with_numbers_is_numbers() -> None:
    fill = np.broadcast_to(np.float32(2), (3,))
    result = combine(np.multiply, fill, np.arange(3, dtype=np.float32))
    assert not is_uniform(result)
    np.testing.assert_array_equal(result, [0, 2, 4])


def test_a_large_fill_is_written_as_a_fill(model: ir.Model) -> None:
    at = model.graph.node("n0")
    editor = Editor(model)
    editor.go_before(at)
    made = editor.initializer(np.broadcast_to(np.float32(3), (1000,)), "k")
    producer = made.producer()
    assert producer is not None
    assert producer.op_type == "ConstantOfShape"
    assert constant(made) is not None


def test_a_weight_derived_in_a_subgraph_lives_in_the_main_graph(model: ir.Model) -> None:
    at = value(model, "p").producer()
    assert at is not None
    assert at.graph is not model.graph
    weight = model.graph.initializers["w"]
    editor = Editor(model)
    editor.go_before(at)
    made = editor.initializer(np.ones(4, np.float32) * [1, 2, 3, 4], "w", origin=[weight])
    literal = editor.initializer(np.asarray([1, 2]), "axes")
    assert made.name == "w_1"
    assert made.name in model.graph.initializers
    assert literal.name in at.graph.initializers


def test_origins_lead_back_to_the_models_own_tensors(model: ir.Model) -> None:
    weight, shape = model.graph.initializers["w"], model.graph.initializers["shape"]
    editor = Editor(model)
    once = editor.initializer(np.ones((2, 2)) * [1, 2], "k", origin=[weight, shape])
    twice = editor.initializer(np.ones((2, 2)) * [3, 4], "l", origin=[once])
    own = editor.initializer(np.ones((2, 2)) * [5, 6], "m")
    mixed = editor.initializer(np.ones((2, 2)) * [7, 8], "n", origin=[twice, own, weight])
    assert noted_origins(twice) == noted_origins(mixed) == ("w", "shape")
    assert (origins(weight), noted_origins(weight)) == (("w",), ())
    assert origins(value(model, "a")) == origins(own) == ()
    assert derived_name(twice, "folded") == "w_folded"


def test_an_output_keeps_its_name_when_redirected(model: ir.Model) -> None:
    a = value(model, "a")
    assert redirect(model.graph.outputs[1], a) is None
    assert model.graph.outputs[1] is a
    assert a.name == "z"


def test_redirection_that_would_break_the_signature_is_refused(model: ir.Model) -> None:
    y, z = model.graph.outputs
    assert redirect(z, y) == "both values are graph outputs"
    assert redirect(z, model.graph.inputs[1]) == "a graph output has to be computed in its graph"
    assert redirect(value(model, "p"), value(model, "b")) is not None
    assert [out.name for out in model.graph.outputs] == ["y", "z"]


def test_names_are_new_to_subgraphs_too(model: ir.Model) -> None:
    editor, at = Editor(model), model.graph.node("n0")
    editor.go_before(at)
    names = [editor.op("Neg", at.inputs[0], like=at.outputs[0], name="p").name for _ in "ab"]
    assert names == ["p_1", "p_2"]
