"""Reorderings between linked sections: those that undo each other go, and the numbers stay."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from sambarun.linking import linker
from sambarun.linking.linker import Part, link
from sambarun.linking.reorders import reordered_once
from sambarun.sessions.host_features import host_features
from sambarun.sessions.opening import Tuning
from sambarun.sessions.threads import Threads

DOMAIN = "com.microsoft.nchwc"
needs_blocks = pytest.mark.skipif(
    not host_features(Tuning(Threads(1))), reason="this host has no blocked convolutions"
)


def info(name, channels=16):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, channels, 3, 5))


def part(label, nodes, inputs, outputs, channels=16):
    """Return a section whose formal names are the symbols' names."""
    ports = [[info(name, channels) for name in names] for names in (inputs, outputs)]
    graph = helper.make_graph(nodes, label, *ports)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    same = [{name: name for name in names} for names in (inputs, outputs)]
    return Part(label, memoryview(model.SerializeToString()), same[0], {}, same[1])


def into(source, target, **attributes):
    return helper.make_node("ReorderInput", [source], [target], domain=DOMAIN, **attributes)


def out_of(source, target, channels=16, **attributes):
    return helper.make_node(
        "ReorderOutput", [source], [target], domain=DOMAIN, channels=channels, **attributes
    )


def neg(source, target):
    return helper.make_node("Neg", [source], [target])


def forward(*more):
    """Return a section that negates x in blocks and returns h in order."""
    return part("f", [into("x", "a"), neg("a", "b"), out_of("b", "h"), *more], ["x"], ["h"])


def backward(*more, reads=("h",)):
    """Return a section that takes h in blocks and returns its square, y, in order."""
    square = helper.make_node("Mul", ["c", "c"], ["d"])
    return part("b", [into("h", "c"), square, out_of("d", "y"), *more], reads, ["y"])


def linked(parts, outputs):
    return onnx.ModelProto.FromString(link(parts, outputs))


def operators(model):
    return [node.op_type for node in model.graph.node]


def run(model):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    rng = np.random.default_rng(0)
    feeds = {
        value.name: rng.standard_normal([dim or 1 for dim in value.shape], np.float32)
        for value in session.get_inputs()
    }
    return session.run(None, feeds)


def check(monkeypatch, parts, outputs):
    """Return the operators of the linked parts, which give what they give with all reorderings."""
    shorter = linked(parts, outputs)
    with monkeypatch.context() as patch:
        patch.setattr(linker, "reordered_once", lambda body, results: list(body))
        whole = linked(parts, outputs)
    for got, expected in zip(run(shorter), run(whole), strict=True):
        np.testing.assert_array_equal(got, expected)
    return operators(shorter)


@needs_blocks
def test_what_is_put_in_order_and_back_stays_in_blocks(monkeypatch):
    made = check(monkeypatch, [forward(), backward()], ["y"])
    assert made == ["ReorderInput", "Neg", "Mul", "ReorderOutput"]


@needs_blocks
def test_what_is_read_in_order_too_is_still_put_in_order(monkeypatch):
    half = helper.make_node("Abs", ["h"], ["z"])
    parts = [forward(), backward(), part("p", [half], ["h"], ["z"])]
    made = check(monkeypatch, parts, ["y", "z"])
    assert (made.count("ReorderInput"), made.count("ReorderOutput")) == (1, 2)


@needs_blocks
def test_results_are_put_in_order(monkeypatch):
    made = check(monkeypatch, [forward(), backward()], ["h", "y"])
    assert (made.count("ReorderInput"), made.count("ReorderOutput")) == (1, 2)


@needs_blocks
def test_the_same_value_is_put_into_blocks_once(monkeypatch):
    other = part("b", [into("x", "c"), neg("c", "d"), out_of("d", "y")], ["x"], ["y"])
    made = check(monkeypatch, [forward(), other], ["h", "y"])
    assert made.count("ReorderInput") == 1


@needs_blocks
def test_chains_of_reorderings_go_altogether(monkeypatch):
    again = part("m", [into("h", "c"), out_of("c", "k")], ["h"], ["k"])
    last = part("l", [into("k", "c"), neg("c", "d"), out_of("d", "y")], ["k"], ["y"])
    made = check(monkeypatch, [forward(), again, last], ["y"])
    assert made == ["ReorderInput", "Neg", "Neg", "ReorderOutput"]


def choice(name):
    """Return an If of which one branch reads the value `name` of the graph around it."""
    branches = [
        helper.make_graph(
            [helper.make_node(op_type, [name], [op_type])], op_type, [], [info(op_type)]
        )
        for op_type in ("Abs", "Neg")
    ]
    return [
        helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("v", 9, [], [True])),
        helper.make_node("If", ["yes"], ["z"], then_branch=branches[0], else_branch=branches[1]),
    ]


@needs_blocks
@pytest.mark.parametrize(("name", "left"), [("h", (1, 2)), ("c", (2, 2))])
def test_what_a_nested_graph_reads_keeps_its_name(monkeypatch, name, left):
    nodes = [into("h", "c"), neg("c", "d"), out_of("d", "y"), *choice(name)]
    parts = [forward(), part("b", nodes, ["h"], ["y", "z"])]
    made = check(monkeypatch, parts, ["y", "z"])
    assert (made.count("ReorderInput"), made.count("ReorderOutput")) == left


@pytest.mark.parametrize(
    "nodes",
    [
        [out_of("b", "h", channels=12), into("h", "c")],
        [out_of("b", "h", channels_last=1), into("h", "c")],
        [out_of("b", "h"), into("h", "c", channels_last=1)],
        [helper.make_node("ReorderOutput", ["b"], ["h"], channels=16), into("h", "c")],
    ],
    ids=["part of a block", "put in order as rows", "read as rows", "of another domain"],
)
def test_reorderings_that_do_not_undo_each_other_stay(nodes):
    whole = linked([part("s", [into("x", "b"), *nodes, neg("c", "y")], ["x"], ["y"])], ["y"])
    assert operators(whole) == ["ReorderInput", "ReorderOutput", "ReorderInput", "Neg"]


def test_fields_that_are_no_nodes_and_graphs_without_blocks_stay():
    graph = helper.make_graph([neg("x", "y")], "g", [info("x")], [info("y")])
    field = b"".join((b"\x0a", bytes([len(graph.node[0].SerializeToString())])))
    body = [b"\x12\x01g", field + graph.node[0].SerializeToString()]
    assert reordered_once(body, ["y"]) == body
