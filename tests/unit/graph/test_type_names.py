"""Types as onnxruntime spells them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.graph.type_names import parse, spell

_DOUBLE = ir.TensorType(ir.DataType.DOUBLE)
_SPELLINGS: list[tuple[ir.TypeProtocol, str]] = [
    (_DOUBLE, "tensor(double)"),
    (ir.SequenceType(_DOUBLE), "seq(tensor(double))"),
    (ir.OptionalType(ir.SequenceType(_DOUBLE)), "optional(seq(tensor(double)))"),
]


@pytest.mark.parametrize(("type_", "spelling"), _SPELLINGS)
def test_a_type_is_spelled_and_read_back(type_: ir.TypeProtocol, spelling: str) -> None:
    assert spell(type_) == spelling
    assert parse(spelling) == type_


def test_what_has_no_known_type() -> None:
    assert spell(None) == ""
    assert spell(ir.TensorType(ir.DataType.UNDEFINED)) == ""
    assert spell(ir.SparseTensorType(ir.DataType.FLOAT)) == "sparse_tensor(float)"
    assert parse("map(int64,tensor(float))") is None
