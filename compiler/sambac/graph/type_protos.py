"""Types as ONNX messages: what onnx_ir reads and writes, and maps, which it does not."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from .type_names import MapType, holds_map


def value_info(value: ir.Value) -> onnx.ValueInfoProto:
    """Return the name of `value`, and its type and shape where they are known, as a message."""
    if value.type is None or not holds_map(value.type):
        return ir.serde.serialize_value(value)
    return onnx.ValueInfoProto(name=value.name, type=_type_proto(value.type))


def _type_proto(type_: ir.TypeProtocol) -> onnx.TypeProto:
    if isinstance(type_, MapType):
        values = _type_proto(type_.elem_type)
        return onnx.TypeProto(
            map_type=onnx.TypeProto.Map(key_type=int(type_.key), value_type=values)
        )
    if isinstance(type_, ir.SequenceType):
        items = _type_proto(type_.elem_type)
        return onnx.TypeProto(sequence_type=onnx.TypeProto.Sequence(elem_type=items))
    if isinstance(type_, ir.OptionalType):
        inner = _type_proto(type_.elem_type)
        return onnx.TypeProto(optional_type=onnx.TypeProto.Optional(elem_type=inner))
    return ir.serde.serialize_type(type_)


def proto_holds_map(proto: onnx.TypeProto) -> bool:
    """Tell whether values of the type `proto` are or contain maps."""
    if proto.HasField("sequence_type"):
        return proto_holds_map(proto.sequence_type.elem_type)
    if proto.HasField("optional_type"):
        return proto_holds_map(proto.optional_type.elem_type)
    return bool(proto.HasField("map_type"))


def read_type(proto: onnx.TypeProto) -> ir.TypeProtocol | None:
    """Return the type that `proto` says, None where it says none.

    Raises `ValueError` for element types that nobody knows.
    """
    if not proto_holds_map(proto):
        return ir.serde.deserialize_type_proto_for_type(proto)
    if proto.HasField("map_type"):
        values = read_type(proto.map_type.value_type)
        return None if values is None else MapType(ir.DataType(proto.map_type.key_type), values)
    if proto.HasField("sequence_type"):
        inner = read_type(proto.sequence_type.elem_type)
        return None if inner is None else ir.SequenceType(inner)
    inner = read_type(proto.optional_type.elem_type)
    return None if inner is None else ir.OptionalType(inner)


def read_shape(proto: onnx.TypeProto) -> ir.Shape | None:
    """Return the shape that `proto` says, of the tensors in it; None for maps."""
    return None if proto_holds_map(proto) else ir.serde.deserialize_type_proto_for_shape(proto)
