"""The verifier of legal form: each rule sees the fault it is for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from sambac.passes.legalize.check_legal import RULES, check_legal

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x, bool c) => (float[2] y)
<float[2] w = {1, 2}, float[2] a> {
  a = Add (x, w)
  y = If (c) <
    then_branch = then () => (float[2] p) { p = Relu (a) },
    else_branch = otherwise () => (float[2] q) { q = Neg (a) }
  >
}"""


def sound_model() -> ir.Model:
    model = ir.from_onnx_text(TEXT)
    for index, node in enumerate(model.graph.all_nodes()):
        node.name = f"n{index}"
    return model


def node(model: ir.Model, op_type: str) -> ir.Node:
    return next(node for node in model.graph.all_nodes() if node.op_type == op_type)


def add_function(model: ir.Model) -> None:
    function = ir.Function("local", "f", graph=ir.Graph([], [], nodes=[]), attributes=[])
    model.functions[function.identifier()] = function


def add_constant(model: ir.Model) -> None:
    constant = ir.node("Constant", [], {"value_int": 3}, name="k")
    constant.outputs[0].name, constant.outputs[0].type = "k", ir.TensorType(ir.DataType.INT64)
    model.graph.insert_before(node(model, "Add"), constant)


def repeat_node_name(model: ir.Model) -> None:
    node(model, "Neg").name = "n0"


def shadow_value(model: ir.Model) -> None:
    node(model, "Neg").outputs[0].name = "a"


def reverse(model: ir.Model) -> None:
    first = node(model, "Add")
    model.graph.remove(first)
    model.graph.append(first)


def forget_type(model: ir.Model) -> None:
    node(model, "Relu").outputs[0].type = None


def keep_version(model: ir.Model) -> None:
    node(model, "Relu").version = 6


def change_content(model: ir.Model) -> None:
    model.graph.initializers["w"].const_value = ir.Tensor(np.zeros(3, np.float32))


def return_outer_value(model: ir.Model) -> None:
    branch = node(model, "If").attributes["then_branch"].as_graph()
    branch.outputs[0] = node(model, "Add").outputs[0]


def return_twice(model: ir.Model) -> None:
    branch = node(model, "If").attributes["then_branch"].as_graph()
    branch.outputs.append(branch.outputs[0])


def return_text(model: ir.Model) -> None:
    text = ir.val("text", const_value=ir.tensor(["a"], name="text"))
    model.graph.register_initializer(text)
    model.graph.outputs.append(text)


FAULTS: dict[str, Callable[[ir.Model], None]] = {
    "no functions": add_function,
    "no Constant nodes": add_constant,
    "unique node names": repeat_node_name,
    "unique value names": shadow_value,
    "topological order": reverse,
    "typed values": forget_type,
    "one opset": keep_version,
    "sound initializers": change_content,
    "own outputs": return_outer_value,
}


def test_a_sound_model_has_no_breach() -> None:
    assert check_legal(sound_model()) == []


def test_every_rule_has_a_fault() -> None:
    assert list(FAULTS) == list(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_a_fault_is_seen_by_its_rule_alone(rule: str) -> None:
    model = sound_model()
    FAULTS[rule](model)
    breaches = check_legal(model)
    assert breaches
    assert {breach.split(":")[0] for breach in breaches} == {rule}


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (return_twice, "has a graph that returns 'p' more than once"),
        (return_text, "the output 'text' is a constant string"),
    ],
)
def test_other_outputs_that_nothing_makes(spoil: Callable[[ir.Model], None], says: str) -> None:
    model = sound_model()
    spoil(model)
    assert any(says in breach for breach in check_legal(model))
