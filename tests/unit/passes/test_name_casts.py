"""Casts that stand for types of others, or that widen what has no kernel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser

import sambac
import sambarun
from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.legalize.insert_casts import NameCasts


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


_ROUND = {  # each reads whole numbers that went around: what it makes of them in their own type
    "int16 product, then limits": (
        """g (int16[2,2] x) => (int16[2,2] y) <int16 lo = {-9}, int16 hi = {20000}>
        { z = Einsum<equation = "ij,jk->ik">(x, x) y = Clip(z, lo, hi) }""",
        [[200, 100], [50, 30000]],
        [[-9, 5344], [2672, -9]],
    ),
    "uint32 sums, then the largest": (
        """g (uint32[2,2] x) => (uint32[1,1] y) <int64[1] rows = {0}>
        { z = ReduceSum(x, rows) y = ReduceMax(z) }""",
        [[1 << 31, 7], [(1 << 31) + 5, 9]],
        [[16]],
    ),
    "uint8 powers, once each": (
        """g (uint8[4] x) => (uint8[n] y) <int64 e = {3}> { z = Pow(x, e) y = Unique(z) }""",
        [100, 4, 0, 8],
        [0, 64],
    ),
}


@pytest.mark.parametrize("case", _ROUND)
def test_whole_numbers_are_narrow_again_behind_each_operator(case: str) -> None:
    text, given, expected = _ROUND[case]
    model = parser.parse_model(f'<ir_version: 10, opset_import: ["": 18]> {text}')
    dtype = text.split("[")[0].split("(")[1]
    with sambarun.load(sambac.compile(model)) as executable:
        found = executable.run({"x": np.asarray(given, dtype)})["y"]
    assert found.tolist() == expected
