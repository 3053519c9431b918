"""Types of values: as onnxruntime spells them, as ONNX messages, and of what one operator makes.

They are spelled `tensor(float)` or `seq(map(int64,tensor(float)))`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import onnx
import onnx_ir as ir
from onnx import defs, shape_inference

from pef import dtypes
from sambac.errors import InternalError

_SMALL = 1024
"""Constants of at most this many elements are shown to shape inference."""


@dataclass(eq=False, repr=False)
class MapType(ir.TypeProtocol):
    """The type of a map from scalars of type `key`, which onnx_ir has no type for.

    Like its other types, this one bears the element type of the innermost tensors as `dtype`.
    """

    key: ir.DataType
    elem_type: ir.TypeProtocol
    dtype: ir.DataType = field(init=False)
    denotation: str | None = None

    def __post_init__(self) -> None:
        self.dtype = self.elem_type.dtype

    def __repr__(self) -> str:
        return f"Map({self.key}, {self.elem_type!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MapType) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))


def spell(type_: ir.TypeProtocol | None) -> str:
    """Return the spelling of `type_`, or an empty string where it is unknown."""
    if isinstance(type_, ir.TensorType):
        return _tensor(type_.dtype)
    if isinstance(type_, ir.SparseTensorType):
        return f"sparse_{_tensor(type_.dtype)}"
    if isinstance(type_, ir.SequenceType):
        return f"seq({spell(type_.elem_type)})"
    if isinstance(type_, ir.OptionalType):
        return f"optional({spell(type_.elem_type)})"
    if isinstance(type_, MapType):
        return f"map({_scalar(type_.key)},{spell(type_.elem_type)})"
    return ""


def holds_map(type_: ir.TypeProtocol | None) -> bool:
    """Tell whether values of `type_` are or contain maps."""
    return "map(" in spell(type_)


@cache
def _tensor(dtype: ir.DataType) -> str:
    return "" if dtype == ir.DataType.UNDEFINED else dtypes.spelling(int(dtype))


def _scalar(dtype: ir.DataType) -> str:
    return _tensor(dtype).removeprefix("tensor(").removesuffix(")")


def parse(spelling: str) -> ir.TypeProtocol | None:
    """Return the type that `spelling` means; None for opaque types and the like."""
    number = dtypes.parse(spelling)
    if number is not None:
        return ir.TensorType(ir.DataType(number))
    kind, inside = dtypes.container(spelling)
    if kind == "map":
        return _parse_map(inside)
    inner = parse(inside) if kind else None
    if inner is None:
        return None
    return ir.SequenceType(inner) if kind == "seq" else ir.OptionalType(inner)


def _parse_map(arguments: str) -> ir.TypeProtocol | None:
    key, _, values = arguments.partition(",")
    number, inner = dtypes.parse(f"tensor({key})"), parse(values)
    return None if number is None or inner is None else MapType(ir.DataType(number), inner)


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


def infer_results(node: ir.Node, opsets: Mapping[str, int]) -> None:
    """Set the types and shapes of the outputs of `node` from those of its inputs.

    Contrib operators keep type and shape of their first input. Raises `InternalError` for inputs
    that the operator does not take.
    """
    if node.domain != "":
        first = node.inputs[0]
        assert first is not None
        node.outputs[0].type, node.outputs[0].shape = first.type, first.shape
        return
    schema = defs.get_schema(node.op_type, opsets[""], "")
    proto = ir.serde.serialize_node(node)
    types: dict[str, onnx.TypeProto] = {}
    data: dict[str, onnx.TensorProto] = {}
    for value in node.inputs:
        if value is None:
            continue
        types[str(value.name)] = value_info(value).type
        tensor = value.const_value
        if value.is_initializer() and tensor is not None and tensor.size <= _SMALL:
            data[str(value.name)] = ir.serde.serialize_tensor(tensor)
    try:
        found = shape_inference.infer_node_outputs(
            schema, proto, types, data, opset_imports=_protos(opsets)
        )
    except shape_inference.InferenceError as error:
        raise InternalError(f"a badly made {node.op_type}: {error}") from error
    for value in node.outputs:
        if value.name in found:
            value.type = read_type(found[value.name])
            value.shape = read_shape(found[value.name])


def _protos(opsets: Mapping[str, int]) -> list[onnx.OperatorSetIdProto]:
    return [
        onnx.OperatorSetIdProto(domain=domain, version=version)
        for domain, version in sorted(opsets.items())
    ]
