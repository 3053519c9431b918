"""Types as onnxruntime spells them."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from sambac.graph.value_types import (
    MapType,
    holds_map,
    parse,
    read_shape,
    read_type,
    spell,
    value_info,
)

_DOUBLE = ir.TensorType(ir.DataType.DOUBLE)
_SPELLINGS: list[tuple[ir.TypeProtocol, str]] = [
    (_DOUBLE, "tensor(double)"),
    (ir.SequenceType(_DOUBLE), "seq(tensor(double))"),
    (ir.OptionalType(ir.SequenceType(_DOUBLE)), "optional(seq(tensor(double)))"),
    (MapType(ir.DataType.INT64, _DOUBLE), "map(int64,tensor(double))"),
    (
        ir.SequenceType(MapType(ir.DataType.STRING, _DOUBLE)),
        "seq(map(string,tensor(double)))",
    ),
]


@pytest.mark.parametrize(("type_", "spelling"), _SPELLINGS)
def test_a_type_is_spelled_and_read_back(type_: ir.TypeProtocol, spelling: str) -> None:
    assert spell(type_) == spelling
    assert parse(spelling) == type_
    assert holds_map(type_) == ("map" in spelling)


@pytest.mark.parametrize(("type_", "spelling"), _SPELLINGS)
def test_a_type_is_a_message_and_read_back(type_: ir.TypeProtocol, spelling: str) -> None:
    info = value_info(ir.Value(name="v", type=type_))
    assert info.name == "v"
    found = read_type(info.type)
    assert found == type_
    assert spell(found) == spelling
    assert read_shape(info.type) is None


def test_what_has_no_known_type() -> None:
    assert spell(None) == ""
    assert spell(ir.TensorType(ir.DataType.UNDEFINED)) == ""
    assert spell(ir.SparseTensorType(ir.DataType.FLOAT)) == "sparse_tensor(float)"
    for spelling in ("opaque(a,b)", "map(int64)", "map(words,tensor(float))", "map(int64,seq)"):
        assert parse(spelling) is None
