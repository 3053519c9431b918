"""Functions, names, order and constants: what the user's graph may look like."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper

from sambac.errors import CompileError
from sambac.graph.names import FreshNames
from sambac.graph.nodes import all_nodes, subgraphs
from sambac.passes.legalize.names_and_order import SortNodes
from sambac.passes.pipelines import LEGALIZE

Legalized = Callable[[str], ir.Model]


def graph_of(nodes: list[onnx.NodeProto], output: str = "y") -> ir.Model:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17)]
    return ir.from_proto(helper.make_model(graph, opset_imports=opsets, ir_version=8))


def test_unsorted_nodes_are_sorted() -> None:
    model = graph_of(
        [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["x"], ["a"])]
    )
    assert SortNodes()(model).modified
    assert [node.op_type for node in model.graph] == ["Relu", "Neg"]
    assert not SortNodes()(model).modified


def test_a_cycle_is_refused() -> None:
    model = graph_of(
        [helper.make_node("Neg", ["a"], ["y"]), helper.make_node("Relu", ["y"], ["a"])]
    )
    with pytest.raises(CompileError, match="form a cycle"):
        SortNodes()(model)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("nodes", "says"),
    [
        ([helper.make_node("Relu", ["ghost"], ["y"])], "the value 'ghost', an input of"),
        ([helper.make_node("Relu", ["x"], ["a"])], "the graph output 'y'"),
    ],
)
def test_values_that_nothing_makes_are_refused(nodes: list[onnx.NodeProto], says: str) -> None:
    with pytest.raises(CompileError, match=says):
        SortNodes()(graph_of(nodes))


def test_a_function_that_calls_itself_is_refused(legalized: Legalized) -> None:
    with pytest.raises(CompileError, match="call themselves"):
        legalized(
            """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
            g (float[3] x) => (y) { y = local.f (x) }
            <domain: "local", opset_import: ["" : 17, "local" : 1]>
            f (x) => (y) { y = local.f (x) }"""
        )


def test_calls_have_no_more_operands_than_their_functions(legalized: Legalized) -> None:
    with pytest.raises(CompileError, match="calls the function 'f' with 1 inputs and 2 outputs"):
        legalized(
            """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
            g (float[2] x) => (float[2] y, float[2] z) { y, z = local.f (x) }
            <domain: "local", opset_import: ["" : 17]>
            f (a) => (b) { b = Relu (a) }"""
        )


def test_a_function_of_an_older_opset_is_inlined_where_its_operators_are_the_same(
    legalized: Legalized,
) -> None:
    text = """<ir_version: 8, opset_import: ["" : 18, "local" : 1]>
        g (float[3] x) => (y) {{ y = local.f (x) }}
        <domain: "local", opset_import: ["" : {opset}]>
        f (x) => (y) {{ {body} }}"""
    model = legalized(text.format(opset=14, body="y = Relu (x)"))
    assert [node.op_type for node in model.graph] == ["Relu"]
    with pytest.raises(CompileError, match="written for opset 11 and differs in the model's, 18"):
        legalized(text.format(opset=11, body="y = Softmax (x)"))


def call_model(calls: list[onnx.NodeProto], functions: list[onnx.FunctionProto]) -> ir.Model:
    model = ir.to_proto(graph_of(calls))
    model.functions.extend(functions)
    model.opset_import.add(domain="local", version=1)
    return ir.from_proto(model)


def function(name: str, outputs: list[str], nodes: list[onnx.NodeProto]) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_function("local", name, ["x"], outputs, nodes, opsets)


@pytest.mark.parametrize(("outputs", "last"), [(["y"], "Relu"), (["", "y"], "Neg")])
def test_calls_may_leave_outputs_out(outputs: list[str], last: str) -> None:
    body = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    call = helper.make_node("two", ["x"], outputs, domain="local")
    model = call_model([call], [function("two", ["a", "b"], body)])
    for step in LEGALIZE:
        step(model)
    maker = model.graph.outputs[0].producer()
    assert maker is not None
    assert maker.op_type == last


def test_overloads_are_told_apart() -> None:
    functions = [
        function("f", ["a"], [helper.make_node(op_type, ["x"], ["a"])])
        for op_type in ("Relu", "Neg")
    ]
    for overload, item in zip(("r", "n"), functions, strict=True):
        item.overload = overload
    calls = [
        helper.make_node("f", ["x"], ["a"], domain="local", overload="n"),
        helper.make_node("f", ["a"], ["y"], domain="local", overload="r"),
    ]
    model = call_model(calls, functions)
    for step in LEGALIZE:
        step(model)
    assert [node.op_type for node in model.graph] == ["Neg", "Relu"]


def test_a_graph_as_parameter_is_refused() -> None:
    branches = [
        onnx.AttributeProto(name=name, type=onnx.AttributeProto.GRAPH, ref_attr_name="body")
        for name in ("then_branch", "else_branch")
    ]
    choice = helper.make_node("If", ["x"], ["a"])
    choice.attribute.extend(branches)
    call = helper.make_node("f", ["x"], ["y"], domain="local")
    model = call_model([call], [function("f", ["a"], [choice])])
    with pytest.raises(CompileError, match="has a graph as its parameter 'body'"):
        LEGALIZE[0](model)


def test_a_call_with_a_graph_is_refused() -> None:
    body = helper.make_graph([], "body", [], [])
    call = helper.make_node("f", ["x"], ["y"], domain="local", body=body)
    model = call_model([call], [function("f", ["a"], [helper.make_node("Neg", ["x"], ["a"])])])
    with pytest.raises(CompileError, match="calls the function 'f' with the graph 'body'"):
        LEGALIZE[0](model)


def test_functions_inside_subgraphs_are_inlined(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[3] x, bool c) => (y) {
          y = If (c) <
            then_branch = then () => (p) { p = local.f (x) },
            else_branch = otherwise () => (q) { q = Neg (x) }
          >
        }
        <domain: "local", opset_import: ["" : 17]>
        f (x) => (y) { a = Relu (x) y = Exp (a) }"""
    )
    assert [node.op_type for node in model.graph.all_nodes()] == ["If", "Relu", "Exp", "Neg"]


def test_constants_of_every_kind(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x) => (y, a, b, c, d, e, f) {
          a = Constant <value_int: int = 3> ()
          b = Constant <value_ints: ints = [3, 4]> ()
          c = Constant <value_float: float = 0.5> ()
          d = Constant <value_floats: floats = [0.5, 1.5]> ()
          e = Constant <value_string: string = "word"> ()
          f = Constant <value_strings: strings = ["two", "words"]> ()
          y = Relu (x)
        }"""
    )
    found = {
        name: (str(value.dtype), value.const_value.numpy().tolist())
        for name, value in model.graph.initializers.items()
        if value.const_value is not None
    }
    assert found == {
        "a": ("INT64", 3),
        "b": ("INT64", [3, 4]),
        "c": ("FLOAT", 0.5),
        "d": ("FLOAT", [0.5, 1.5]),
        "e_copy": ("STRING", b"word"),
        "f_copy": ("STRING", [b"two", b"words"]),
    }
    assert [value.name for value in model.graph.outputs] == ["y", "a", "b", "c", "d", "e", "f"]


def test_what_a_subgraph_returns_twice_is_copied(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x, bool c) => (a, b) {
          a, b = If (c) <
            then_branch = one () => (float[3] p, float[3] p) { p = Neg (x) },
            else_branch = two () => (float[3] q, float[3] q) <float[3] q = {1, 2, 3}> { }
          >
        }"""
    )
    (node,) = model.graph
    found = {graph.name: [str(value.name) for value in graph.outputs] for graph in subgraphs(node)}
    assert found == {"one": ["p", "p_copy"], "two": ["q", "q_copy"]}


def test_a_scan_that_returns_its_input_gets_a_copy(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[3] x, float[4, 3] y) => (a, b) {
          a, b = Scan <num_scan_inputs = 1, body = step (float[3] s, float[3] e)
            => (float[3] s, float[3] r) { r = Add (s, e) }> (x, y)
        }"""
    )
    (node,) = model.graph
    (body,) = subgraphs(node)
    assert [value.name for value in body.outputs] == ["s_copy", "r"]


def test_a_loop_may_return_its_input(legalized: Legalized) -> None:
    model = legalized(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (int64 n, float[3] x) => (a) {
          a = Loop (n, , x) <body = step (int64 i, bool c, float[3] s)
            => (bool c, float[3] r) { r = Neg (s) }>
        }"""
    )
    assert [node.op_type for node in all_nodes(model.graph)] == ["Loop", "Neg"]


def test_names_of_inputs_and_outputs_survive() -> None:
    model = graph_of(
        [
            helper.make_node("Relu", ["x"], ["a"], name="same"),
            helper.make_node("Neg", ["a"], ["y"], name="same"),
        ]
    )
    inner = next(iter(model.graph)).outputs[0]
    inner.name = "y"
    for step in LEGALIZE:
        step(model)
    assert [value.name for value in model.graph.outputs] == ["y"]
    assert inner.name == "y_1"
    assert [node.name for node in model.graph] == ["same", "same_1"]


def test_fresh_names_are_fresh() -> None:
    fresh = FreshNames(["a", "a_1"])
    assert [fresh("a"), fresh("a"), fresh("b"), fresh("a_2")] == ["a_2", "a_3", "b", "a_2_1"]
