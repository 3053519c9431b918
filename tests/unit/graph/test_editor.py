"""An editor puts operators where it stands, under names that are new to the model."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest

from sambac.errors import InternalError
from sambac.graph.editor import Editor
from sambac.graph.nodes import supersede
from sambac.graph.origins import MODULE_SCOPES

TEXT = """
<ir_version: 8, opset_import: ["" : 23]>
g (bool c, float[2,3] x) => (float[2,3] y)
{
   a = Relu (x)
   s = If (c) <then_branch = t () => (float[2,3] p) { p = Neg (a) },
               else_branch = e () => (float[2,3] q) { q = Abs (a) }>
   y = Exp (s)
}
"""


@pytest.fixture
def model() -> ir.Model:
    made = ir.from_onnx_text(TEXT)
    for index, node in enumerate(made.graph.all_nodes()):
        node.name = f"n{index}"
        for out in node.outputs:
            out.dtype, out.shape = ir.DataType.FLOAT, ir.Shape([2, 3])
    return made


def value(model: ir.Model, name: str) -> ir.Value:
    found = {out.name: out for node in model.graph.all_nodes() for out in node.outputs}
    return found[name]


def maker(model: ir.Model, name: str) -> ir.Node:
    node = value(model, name).producer()
    assert node is not None
    return node


def types(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


def test_operators_stand_where_the_editor_does_in_the_order_in_which_they_are_made(
    model: ir.Model,
) -> None:
    b, a = Editor(model), value(model, "a")
    b.op("Sin", b.op("Cos", a))
    b.go_before(maker(model, "y"))
    b.op("Sinh", b.op("Cosh", a))
    b.go_behind(maker(model, "a"))
    b.op("Ceil", b.op("Floor", a))
    b.go_to_end(maker(model, "p").graph)
    b.op("Tan", a)
    assert types(model.graph) == [
        "Relu", "Floor", "Ceil", "If", "Cosh", "Sinh", "Exp", "Cos", "Sin",
    ]  # fmt: skip
    assert types(maker(model, "p").graph) == ["Neg", "Tan"]


def test_what_is_made_for_a_node_is_named_after_its_output_and_of_its_module(
    model: ir.Model,
) -> None:
    b, node = Editor(model, "scope/"), maker(model, "y")
    node.metadata_props[MODULE_SCOPES] = "['layer', '']"
    scoped = b.op("Neg", value(model, "a"))
    b.rewrite(node)
    named = b.op("Neg", value(model, "a"))
    assert (scoped.name, named.name) == ("scope/Neg", "y_neg")
    assert named.producer().metadata_props == {MODULE_SCOPES: "['layer', '']"}
    assert scoped.producer().metadata_props == {}


def test_names_and_constants_are_shared_with_the_graphs_inside(model: ir.Model) -> None:
    b = Editor(model)
    inner = b.inside(maker(model, "p").graph)
    results = [b.op("Add", value(model, "a"), 1.0), inner.op("Add", value(model, "a"), 1.0)]
    assert [result.name for result in results] == ["Add", "Add_1"]
    assert results[0].producer().inputs[1] is results[1].producer().inputs[1]
    assert list(model.graph.initializers) == ["constant"]


def test_types_are_inferred_where_they_are_not_given(model: ir.Model) -> None:
    b, a = Editor(model), value(model, "a")
    total = b.op("ReduceSum", a, [1], keepdims=0)
    assert (total.dtype, total.shape) == (ir.DataType.FLOAT, ir.Shape([2]))
    claimed = b.op("Identity", a, like=ir.val("", ir.DataType.FLOAT, ("n", 3)))
    assert claimed.shape == ir.Shape(["n", 3])
    first, second = b.ops("Split", a, outputs=2, axis=0, num_outputs=2)
    assert first.shape == second.shape == ir.Shape([1, 3])


def test_a_domain_is_imported_when_an_operator_of_it_is_made(model: ir.Model) -> None:
    b, a = Editor(model), value(model, "a")
    assert "com.microsoft" not in model.opset_imports
    b.op("Gelu", a, domain="com.microsoft")
    assert model.opset_imports["com.microsoft"] == 1
    new = b.replace(maker(model, "y"), "Gelu", a, domain="com.microsoft")
    assert (new.domain, new.name, model.graph.outputs[0].name) == ("com.microsoft", "n4", "y")


def test_what_a_point_remembers_is_not_read_before_it(model: ir.Model) -> None:
    b, a = Editor(model), value(model, "a")
    make = lambda: b.op("Neg", a)  # noqa: E731
    first = b.point.once(("neg",), make)
    assert b.point.once(("neg",), make) is first
    b.go_behind(maker(model, "a"))
    assert b.point.once(("neg",), make) is not first


def test_a_value_takes_the_place_of_another_with_its_name(model: ir.Model) -> None:
    b, node = Editor(model), maker(model, "y")
    b.go_before(node)
    made = b.op("Log", value(model, "s"))
    supersede(node.outputs[0], made)
    b.remove(node)
    assert model.graph.outputs == [made]
    assert made.name == "y"
    assert types(model.graph) == ["Relu", "If", "Log"]


def test_operands_that_do_not_fit_are_an_error(model: ir.Model) -> None:
    b = Editor(model)
    with pytest.raises(InternalError, match="a badly made MatMul"):
        b.op("MatMul", value(model, "a"), np.ones((2, 2), np.float32))
    with pytest.raises(InternalError, match="a bare number needs a tensor"):
        b.op("Neg", 1.0)
