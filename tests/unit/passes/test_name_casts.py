"""CastLike becomes a Cast to the type it stands for."""

from __future__ import annotations

import onnx_ir as ir

from sambac.passes.infer_shapes import InferShapes
from sambac.passes.insert_casts import NameCasts


def test_the_type_of_the_other_input_is_named():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 23]>
        g (int64[3] x, float16[2] like) => (float16[3] y) { y = CastLike (x, like) }"""
    )
    InferShapes()(model)
    assert NameCasts()(model).modified
    (node,) = model.graph
    assert (node.op_type, len(node.inputs)) == ("Cast", 1)
    assert node.attributes["to"].as_int() == ir.DataType.FLOAT16
    assert node.outputs[0].name == "y"


def test_an_unknown_type_stays():
    model = ir.from_onnx_text(
        """<ir_version: 10, opset_import: ["": 23, "other": 1]>
        g (int64[3] x) => (y) { like = other.Make (x) y = CastLike (x, like) }"""
    )
    assert not NameCasts()(model).modified
