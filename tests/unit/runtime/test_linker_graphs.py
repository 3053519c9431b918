"""Linked graphs compute what their parts compute one after the other, whatever the names."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import sambarun
from sambarun.linking.linker import Part, link, opset_imports


def info(name, shape=(4,), dtype=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(nodes, inputs, outputs, *, initializers=(), imports=(("", 21),), **extra):
    graph = helper.make_graph(
        nodes,
        "section",
        [name if isinstance(name, onnx.ValueInfoProto) else info(name) for name in inputs],
        [name if isinstance(name, onnx.ValueInfoProto) else info(name) for name in outputs],
        initializer=list(initializers),
        **extra,
    )
    opsets = [helper.make_opsetid(*pair) for pair in imports]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def part(label, graph, inputs, outputs, weights=None):
    return Part(label, memoryview(graph.SerializeToString()), inputs, weights or {}, outputs)


def run(parts, outputs, feeds, weights=None):
    """Link, add `weights` as initializers, check the graph and run it."""
    linked = onnx.ModelProto.FromString(link(parts, outputs))
    for name, array in (weights or {}).items():
        linked.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.checker.check_model(linked, full_check=True)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(linked.SerializeToString(), options)
    assert [value.name for value in session.get_outputs()] == list(outputs)
    return session.run(None, feeds)


X = np.array([1, -2, 3, -4], np.float32)


def negate(source, target):
    return model([helper.make_node("Neg", [source], [target])], [source], [target])


def test_parts_are_joined_at_their_symbols():
    one, two = negate("i0", "o0"), negate("i0", "o0")
    parts = [part("a", one, {"i0": "x"}, {"o0": "h"}), part("b", two, {"i0": "h"}, {"o0": "y"})]
    linked = onnx.ModelProto.FromString(link(parts, ["y"]))
    assert [value.name for value in linked.graph.input] == ["x"]
    assert not linked.graph.value_info
    (y,) = run(parts, ["y"], {"x": X})
    np.testing.assert_array_equal(y, X)


def test_the_same_program_may_be_linked_many_times_over():
    graph = model(
        [helper.make_node("Add", ["i0", "c"], ["t0"]), helper.make_node("Neg", ["t0"], ["o0"])],
        ["i0"],
        ["o0"],
        initializers=[numpy_helper.from_array(np.float32(1), "c")],
    )
    parts = [part("s", graph, {"i0": f"v{n}"}, {"o0": f"v{n + 1}"}) for n in range(4)]
    (y,) = run(parts, ["v4"], {"v0": X})
    np.testing.assert_array_equal(y, X)


def test_intermediate_results_may_be_outputs_too():
    parts = [
        part("a", negate("i0", "o0"), {"i0": "x"}, {"o0": "h"}),
        part("b", negate("i0", "o0"), {"i0": "h"}, {"o0": "y"}),
    ]
    h, y = run(parts, ["h", "y"], {"x": X})
    np.testing.assert_array_equal(h, -X)
    np.testing.assert_array_equal(y, X)


def test_a_shared_weight_is_one_name():
    graph = model([helper.make_node("Mul", ["i0", "w0"], ["o0"])], ["i0"], ["o0"])
    parts = [
        part("a", graph, {"i0": "x"}, {"o0": "h"}, {"w0": "weight"}),
        part("b", graph, {"i0": "h"}, {"o0": "y"}, {"w0": "weight"}),
    ]
    (y,) = run(parts, ["y"], {"x": X}, {"weight": np.float32([2])})
    np.testing.assert_array_equal(y, 4 * X)


def test_inner_names_never_meet_symbols():
    """The first part's `t0` would become `a/t0`, which is also the name of a symbol."""
    graph = model(
        [helper.make_node("Neg", ["i0"], ["t0"]), helper.make_node("Abs", ["t0"], ["o0"])],
        ["i0"],
        ["o0"],
    )
    parts = [
        part("a", graph, {"i0": "t0"}, {"o0": "a/t0"}),
        part("a", graph, {"i0": "a/t0"}, {"o0": "a/t0~1"}),
    ]
    (y,) = run(parts, ["a/t0~1"], {"t0": X})
    np.testing.assert_array_equal(y, abs(X))


def test_equal_node_names_do_not_meet():
    named = model([helper.make_node("Neg", ["i0"], ["o0"], name="n")], ["i0"], ["o0"])
    parts = [
        part("a", named, {"i0": "x"}, {"o0": "h"}),
        part("b", named, {"i0": "h"}, {"o0": "y"}),
    ]
    (y,) = run(parts, ["y"], {"x": X})
    np.testing.assert_array_equal(y, X)


def branch(name, nodes, initializers=()):
    return helper.make_graph(nodes, name, [], [info(nodes[-1].output[0])], list(initializers))


def conditional(then, otherwise):
    node = helper.make_node("If", ["i1"], ["o0"], then_branch=then, else_branch=otherwise)
    return model([node], ["i0", info("i1", (), TensorProto.BOOL)], ["o0"])


def test_subgraphs_capture_inputs_and_weights_under_their_new_names():
    graph = conditional(
        branch("t", [helper.make_node("Mul", ["i0", "w0"], ["r"])]),
        branch("e", [helper.make_node("Neg", ["i0"], ["r2"])]),
    )
    parts = [
        part("a", graph, {"i0": "x", "i1": "c"}, {"o0": "h"}, {"w0": "weight"}),
        part("b", graph, {"i0": "h", "i1": "c"}, {"o0": "y"}, {"w0": "weight"}),
    ]
    for condition, factor in ((True, 9), (False, 1)):
        feeds = {"x": X, "c": np.array(condition)}
        (y,) = run(parts, ["y"], feeds, {"weight": np.float32([3])})
        np.testing.assert_array_equal(y, factor * X)


def test_what_a_subgraph_defines_hides_what_is_outside():
    """Both branches define values with the names of the formal inputs of the section."""
    graph = conditional(
        branch(
            "t",
            [helper.make_node("Neg", ["i1"], ["o0"])],
            [numpy_helper.from_array(np.full(4, 7, np.float32), "i1")],
        ),
        branch(
            "e", [helper.make_node("Neg", ["i0"], ["w"]), helper.make_node("Abs", ["w"], ["v"])]
        ),
    )
    parts = [
        part("a", graph, {"i0": "x", "i1": "c"}, {"o0": "h"}),
        part("b", negate("i0", "o0"), {"i0": "h"}, {"o0": "y"}),
    ]
    raw = link(parts, ["y"])
    session = onnxruntime.InferenceSession(raw)
    for condition, expected in ((True, np.full(4, 7)), (False, -abs(X))):
        (y,) = session.run(None, {"x": X, "c": np.array(condition)})
        np.testing.assert_array_equal(y, expected)


def test_loops_nest_and_carry():
    """A loop whose body has an If that captures from the body, the graph and a weight."""
    inner = helper.make_node(
        "If",
        ["cond"],
        ["r"],
        then_branch=branch(
            "t",
            [
                helper.make_node("Add", ["acc", "i0"], ["s"]),
                helper.make_node("Add", ["s", "w0"], ["q"]),
            ],
        ),
        else_branch=branch("e", [helper.make_node("Identity", ["acc"], ["q2"])]),
    )
    body = helper.make_graph(
        [inner, helper.make_node("Identity", ["cond"], ["again"])],
        "body",
        [info("step", (), TensorProto.INT64), info("cond", (), TensorProto.BOOL), info("acc")],
        [info("again", (), TensorProto.BOOL), info("r")],
    )
    loop = helper.make_node("Loop", ["trips", "yes", "i0"], ["o0"], body=body)
    graph = model(
        [loop],
        ["i0"],
        ["o0"],
        initializers=[
            numpy_helper.from_array(np.int64(3), "trips"),
            numpy_helper.from_array(np.bool_(True), "yes"),
        ],
    )
    parts = [
        part("a", graph, {"i0": "x"}, {"o0": "h"}, {"w0": "one"}),
        part("b", graph, {"i0": "h"}, {"o0": "y"}, {"w0": "one"}),
    ]
    h, y = run(parts, ["h", "y"], {"x": X}, {"one": np.ones(4, np.float32)})
    np.testing.assert_array_equal(h, 4 * X + 3)
    np.testing.assert_array_equal(y, 4 * (4 * X + 3) + 3)


def test_an_input_may_be_an_output():
    graph = model([], ["v"], ["v"])
    same = [
        part("a", graph, {"v": "x"}, {"v": "x"}),
        part("b", negate("i", "o"), {"i": "x"}, {"o": "y"}),
    ]
    x, y = run(same, ["x", "y"], {"x": X})
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, -X)
    renamed = [
        part("a", graph, {"v": "x"}, {"v": "z"}),
        part("b", negate("i", "o"), {"i": "z"}, {"o": "y"}),
    ]
    z, y = run(renamed, ["z", "y"], {"x": X})
    np.testing.assert_array_equal(z, X)
    np.testing.assert_array_equal(y, -X)


def test_sparse_initializers_are_renamed():
    values = numpy_helper.from_array(np.float32([5]), "c")
    indices = numpy_helper.from_array(np.int64([2]), "unused")
    sparse = helper.make_sparse_tensor(values, indices, [4])
    graph = model([helper.make_node("Add", ["i0", "c"], ["o0"])], ["i0"], ["o0"])
    graph.graph.sparse_initializer.append(sparse)
    parts = [part(n, graph, {"i0": a}, {"o0": b}) for n, a, b in (("a", "x", "h"), ("b", "h", "y"))]
    linked = link(parts, ["y"])
    (y,) = onnxruntime.InferenceSession(linked).run(None, {"x": X})
    np.testing.assert_array_equal(y, X + np.float32([0, 0, 10, 0]))


def test_annotations_are_left_behind():
    graph = negate("i0", "o0")
    graph.graph.value_info.append(info("nobody"))
    graph.graph.doc_string = "text"
    graph.graph.metadata_props.add(key="k", value="v")
    graph.graph.quantization_annotation.add(tensor_name="nobody")
    linked = onnx.ModelProto.FromString(link([part("a", graph, {"i0": "x"}, {"o0": "y"})], ["y"]))
    assert linked.graph.name == "linked"
    assert not linked.graph.value_info
    assert not linked.graph.doc_string
    assert not linked.graph.metadata_props
    assert not linked.graph.quantization_annotation


def test_operator_sets_are_merged_and_must_agree():
    neg = helper.make_node("Neg", ["i0"], ["o0"])
    one = model([neg], ["i0"], ["o0"], imports=[("", 21), ("com.microsoft", 1)])
    two = model([neg], ["i0"], ["o0"], imports=[("ai.onnx", 21)])
    assert opset_imports(memoryview(one.SerializeToString())) == {"": 21, "com.microsoft": 1}
    parts = [part("a", one, {"i0": "x"}, {"o0": "h"}), part("b", two, {"i0": "h"}, {"o0": "y"})]
    (y,) = run(parts, ["y"], {"x": X})
    np.testing.assert_array_equal(y, X)
    other = model([neg], ["i0"], ["o0"], imports=[("", 20)])
    with pytest.raises(sambarun.RunError, match=r"versions 21 and 20 of operator set 'ai\.onnx'"):
        link([parts[0], part("c", other, {"i0": "h"}, {"o0": "y"})], ["y"])


@pytest.mark.parametrize(
    ("graph", "outputs", "message"),
    [
        (negate("other", "o0"), ["y"], "uses a value 'other'|has no input 'i0'"),
        (negate("i0", "o0"), ["z"], "No linked section produces 'z'"),
        (model([], [], []), ["y"], "has no input 'i0'"),
    ],
)
def test_parts_that_do_not_fit_are_errors(graph, outputs, message):
    with pytest.raises(sambarun.RunError, match=message):
        link([part("a", graph, {"i0": "x"}, {"o0": "y"})], outputs)


def test_local_functions_are_refused():
    graph = negate("i0", "o0")
    graph.functions.add(name="f", domain="d")
    with pytest.raises(sambarun.RunError, match="local functions"):
        link([part("a", graph, {"i0": "x"}, {"o0": "y"})], ["y"])


def test_what_a_section_reads_but_nothing_defines_is_named():
    graph = model([helper.make_node("Add", ["i0", "ghost"], ["o0"])], ["i0"], ["o0"])
    with pytest.raises(sambarun.RunError, match="Section 'a' uses a value 'ghost'"):
        link([part("a", graph, {"i0": "x"}, {"o0": "y"})], ["y"])
