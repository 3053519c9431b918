"""Copies of nodes: what they read, make and keep."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import copy_node


def test_a_copy_reads_what_was_copied_and_makes_values_of_its_own() -> None:
    x, mask, other = (ir.val(name, ir.DataType.FLOAT, (2,)) for name in ("x", "mask", "other"))
    made = [ir.val("y", ir.DataType.FLOAT, (2,)), ir.Value(name="")]
    node = ir.node("Some", [x, None, mask], {"k": 3}, outputs=made, domain="own", name="first")
    node.version = 7
    node.metadata_props["from"] = "here"
    copies = {x: other}

    copy = copy_node(node, copies, "second", lambda value: f"again/{value.name}")

    assert (copy.domain, copy.op_type, copy.version, copy.name) == ("own", "Some", 7, "second")
    assert list(copy.inputs) == [other, None, mask]
    assert copy.attributes["k"].as_int() == 3
    assert dict(copy.metadata_props) == {"from": "here"}
    assert [value.name for value in copy.outputs] == ["again/y", ""]
    assert (copy.outputs[0].dtype, copy.outputs[0].shape) == (ir.DataType.FLOAT, ir.Shape([2]))
    assert [copies[value] for value in node.outputs] == list(copy.outputs)
    copy.metadata_props["from"] = "there"
    assert node.metadata_props["from"] == "here"
