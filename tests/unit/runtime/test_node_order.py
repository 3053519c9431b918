"""The order of a linked graph's nodes: results are listed last, the first of them at the end."""

from __future__ import annotations

from onnx import NodeProto, TensorProto, helper

from pef import onnx_fields
from pef.wire import bytes_field, text_field
from sambarun.linking.nodes import results_soon


def body(nodes):
    name = text_field(onnx_fields.GRAPH_NAME, "graph")
    return [
        name,
        *(bytes_field(onnx_fields.GRAPH_NODE, node.SerializeToString()) for node in nodes),
    ]


def makes(fields):
    """Return what each node makes, in order, and leave out other fields."""
    graph = helper.make_graph([], "empty", [], []).FromString(b"".join(map(bytes, fields)))
    return [output for node in graph.node for output in node.output]


def negations(*pairs) -> list[NodeProto]:
    return [helper.make_node("Neg", [source], [target]) for source, target in pairs]


def test_nodes_that_nothing_reads_come_last_and_in_reverse():
    nodes = negations(("x", "a"), ("a", "first"), ("a", "b"), ("b", "second"), ("b", "third"))
    fields = body(nodes)
    ordered = results_soon(fields)
    assert makes(ordered) == ["a", "b", "third", "second", "first"]
    assert sorted(map(bytes, ordered)) == sorted(map(bytes, fields))


def test_a_node_that_only_one_of_its_results_is_read_of_stays():
    split = helper.make_node("Split", ["x"], ["left", "right"], num_outputs=2)
    assert makes(results_soon(body([split, *negations(("left", "y"))]))) == ["left", "right", "y"]


def test_graphs_in_nodes_may_read_anything_so_nothing_moves():
    inner = helper.make_graph(
        negations(("first", "z")),
        "then",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [4])],
    )
    choice = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    nodes = [*negations(("x", "first"), ("x", "second")), choice]
    assert makes(results_soon(body(nodes))) == ["first", "second", "y"]


def test_a_graph_without_nodes_stays_as_it_is():
    assert results_soon([]) == []
