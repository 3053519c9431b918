"""Differentiation of small graphs: which nodes take part, what is refused, what is expanded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.autodiff import differentiate, expansion, walker
from sambac.errors import CompileError
from sambac.graph.nodes import mark_stop
from sambac.ops import gradient_of
from sambac.passes.legalize.infer_shapes import infer

HEADER = '<ir_version: 10, opset_import: ["": 23]>'


def parsed(text: str) -> ir.Model:
    model = ir.serde.deserialize_model(onnx.parser.parse_model(f"{HEADER} {text}"))
    for number, node in enumerate(model.graph):
        node.name = node.name or f"node_{number}"
    infer(model)
    return model


def differentiated(model: ir.Model, *trained: str) -> dict[str, ir.Value]:
    """Differentiate all outputs, from inputs `d_NAME`; the gradients found become outputs."""
    seeds = {}
    for output in tuple(model.graph.outputs):
        seed = ir.Value(name=f"d_{output.name}", type=output.type, shape=output.shape)
        model.graph.inputs.append(seed)
        seeds[output] = seed
    by_name = {value.name: value for value in model.graph.inputs}
    found = differentiate(model, seeds, [by_name[name] for name in trained])
    model.graph.outputs.extend(dict.fromkeys(found.values()))
    return {str(value.name): gradient for value, gradient in found.items()}


def run(model: ir.Model, names: Sequence[str], **feeds: Any) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    arrays = {name: np.asarray(array, np.float32) for name, array in feeds.items()}
    return session.run(list(names), arrays)


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def hide_rule(monkeypatch: pytest.MonkeyPatch, op_type: str) -> None:
    def hiding(node: ir.Node) -> Any:
        return None if node.op_type == op_type else gradient_of(node)

    for module in (expansion, walker):
        monkeypatch.setattr(module, "gradient_of", hiding)


def test_gradients_of_a_value_read_twice_are_summed():
    model = parsed("g (float[2] x) => (float[2] y) { a = Mul(x, x) y = Add(a, x) }")
    gradient = differentiated(model, "x")["x"]
    (dx,) = run(model, [gradient.name], x=[3, -1], d_y=[1, 10])
    np.testing.assert_allclose(dx, [7, -10])


def test_nothing_comes_back_through_hidden_rows_of_a_softmax():
    """Whose softmax is no number, for which a Where takes 0."""
    model = parsed("""g (float[2,2] x) => (float[2,2] y) <float zero = {0}>
{ s = Softmax(x) n = IsNaN(s) y = Where(n, zero, s) }""")
    gradient = differentiated(model, "x")["x"]
    hidden = [-np.inf, -np.inf]
    (dx,) = run(model, [gradient.name], x=[hidden, [0, 0]], d_y=[[3, 4], [3, 4]])
    np.testing.assert_allclose(dx, [[0, 0], [-0.25, 0.25]])


@pytest.mark.parametrize(
    "body",
    [
        "s = Softmax(x) n = IsNaN(s) y = Where(n, zeros, s)",
        """s = Softmax(x) n = IsNaN(s) y = Add(s, zeros)
        z = If (c) <then_branch = t () => (float[2,2] p) { p = Where(n, zero, s) },
                    else_branch = e () => (float[2,2] q) { q = Neg(zero2) }>""",
    ],
    ids=["of more axes", "in a branch"],
)
def test_what_hides_rows_elsewhere_is_no_part_of_a_softmax(body: str):
    model = parsed(
        "g (float[2,2] x, bool c) => (float[2,2,2] y) <float zero = {0}, float[2,1,1] zeros = "
        f"{{0, 0}}, float[2,2] zero2 = {{0, 0, 0, 0}}> {{ {body} }}"
    )
    gradient = differentiated(model, "x")["x"]
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    feeds = {"x": np.zeros((2, 2), "f4"), "c": np.array(True), "d_y": np.ones((2, 2, 2), "f4")}
    feeds["d_y"][..., 1] = 2
    (dx,) = session.run([gradient.name], feeds)
    np.testing.assert_allclose(dx, [[-0.5, 0.5], [-0.5, 0.5]])


def test_what_was_broadcast_is_summed():
    model = parsed("g (float[2,1] x, float[3] z) => (float[2,3] y) { y = Mul(x, z) }")
    found = differentiated(model, "x", "z")
    names = [found["x"].name, found["z"].name]
    dx, dz = run(model, names, x=[[2], [3]], z=[1, 2, 4], d_y=np.ones((2, 3)))
    np.testing.assert_allclose(dx, [[7], [7]])
    np.testing.assert_allclose(dz, [5, 5, 5])


def test_what_no_output_depends_on_is_absent():
    model = parsed("g (float[2] x, float[2] z) => (float[2] y) { y = Mul(x, x) w = Exp(z) }")
    assert set(differentiated(model, "x", "z")) == {"x"}


def test_only_what_is_trained_is_differentiated():
    model = parsed("g (float[2] x, float[2] w) => (float[2] y) { a = Exp(x) y = Mul(a, w) }")
    before = len(model.graph)
    assert set(differentiated(model, "w")) == {"w"}
    assert operators(model)[before:] == ["Mul"]


def test_no_gradient_flows_through_a_stop():
    model = parsed("g (float[2] x) => (float[2] y) { a = Identity(x) y = Mul(a, x) }")
    mark_stop(model.graph[0])
    gradient = differentiated(model, "x")["x"]
    (dx,) = run(model, [gradient.name], x=[3, -1], d_y=[1, 1])
    np.testing.assert_allclose(dx, [3, -1])


def test_everything_without_a_gradient_is_listed_with_a_cure():
    model = parsed(
        """g (float[4] x, bool c, float[1,2,4] s, float[1,4,4] w)
        => (float[4] y, float[1,1,2,4] h) {
        a = If (c) <then_branch = t () => (float[4] p) { p = Exp(x) },
                    else_branch = e () => (float[4] q) { q = Neg(x) }>
        y = Mul(a, a)
        n = Neg(s)
        h = RNN <hidden_size = 4, clip = 1.0> (n, w, w) }"""
    )
    with pytest.raises(CompileError) as caught:
        differentiated(model, "x", "s")
    message = str(caught.value)
    assert "If 'node_0' (nothing is trained through control flow, such as torch.cond" in message
    assert "RNN 'node_3' (its gates are clipped)" in message
    assert "freeze the parameters before them" in message


def test_what_is_not_trained_may_be_anything():
    model = parsed(
        """g (float[4] x, bool c, float[4] w) => (float[4] y) {
        a = If (c) <then_branch = t () => (float[4] p) { p = Exp(x) },
                    else_branch = e () => (float[4] q) { q = Neg(x) }>
        y = Mul(a, w) }"""
    )
    assert set(differentiated(model, "w")) == {"w"}


def test_an_expanded_output_keeps_its_name(monkeypatch: pytest.MonkeyPatch):
    hide_rule(monkeypatch, "Gelu")
    model = parsed("g (float[3] x) => (float[3] y) { y = Gelu(x) }")
    model.graph[0].metadata_props["from"] = "layer"
    inside = differentiated(model, "x")["x"]
    assert [value.name for value in model.graph.outputs] == ["y", inside.name]
    assert "Gelu" not in operators(model)
    producer = model.graph.outputs[0].producer()
    assert producer is not None
    assert producer.metadata_props["from"] == "layer"


def test_expanded_nodes_are_named_after_theirs(monkeypatch: pytest.MonkeyPatch):
    hide_rule(monkeypatch, "Gelu")
    model = parsed("g (float[3] x) => (float[3] y) { a = Gelu(x) y = Gelu(a) }")
    differentiated(model, "x")
    names = [node.name for node in model.graph]
    assert len(names) == len(set(names))
    assert {name.split("/")[0] for name in names} == {"node_0", "node_1", "grad"}


def test_what_is_not_differentiated_is_not_expanded(monkeypatch: pytest.MonkeyPatch):
    hide_rule(monkeypatch, "Gelu")
    model = parsed("g (float[3] x, float[3] w) => (float[3] y) { a = Gelu(x) y = Mul(a, w) }")
    differentiated(model, "w")
    assert operators(model).count("Gelu") == 1


def test_a_body_within_a_body_is_expanded(monkeypatch: pytest.MonkeyPatch):
    def hiding(node: ir.Node) -> Any:
        return None if node.op_type in ("Mish", "Softplus") else gradient_of(node)

    for module in (expansion, walker):
        monkeypatch.setattr(module, "gradient_of", hiding)
    model = parsed("g (float[3] x) => (float[3] y) { y = Mish(x) }")
    gradient = differentiated(model, "x")["x"]
    assert not {"Mish", "Softplus"} & set(operators(model))
    (dx,) = run(model, [gradient.name], x=[0, 0, 0], d_y=[1, 2, 3])
    np.testing.assert_allclose(dx, 0.6 * np.array([1, 2, 3]), rtol=1e-5)
