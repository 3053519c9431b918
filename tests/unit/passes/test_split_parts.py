"""Parts that are told apart where they lie are the parts that were picked."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.passes.legalize.infer_shapes import InferShapes
from sambac.passes.simplify.split_parts import SplitParts


@pytest.mark.parametrize(("index", "changed"), [(-2, True), (0, True), (2, False), (-3, False)])
def test_a_part_that_there_is_not_stays_what_onnxruntime_refuses(index: int, changed: bool) -> None:
    model = ir.from_onnx_text(
        '<ir_version: 9, opset_import: ["" : 18]>'
        " g (float[2,5,16] x) => (float[2,5,8] q, float[2,5,8] k)"
        f" <int64[4] apart = {{2, 5, 2, 8}}, int64 at = {{{index}}}, int64 last = {{-1}}> {{"
        " parts = Reshape (x, apart)"
        " q = Gather <axis = 2> (parts, at)  k = Gather <axis = 2> (parts, last) }"
    )
    InferShapes()(model)
    assert SplitParts()(model).modified == changed
