"""Types as onnxruntime spells them: `tensor(float)`, `seq(map(int64,tensor(float)))`, ..."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import onnx_ir as ir

from pef import dtypes


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
    kind, _, rest = spelling.partition("(")
    if kind == "map":
        return _parse_map(rest[:-1])
    inner = parse(rest[:-1]) if kind in ("seq", "optional") else None
    if inner is None:
        return None
    return ir.SequenceType(inner) if kind == "seq" else ir.OptionalType(inner)


def _parse_map(arguments: str) -> ir.TypeProtocol | None:
    key, _, values = arguments.partition(",")
    number, inner = dtypes.parse(f"tensor({key})"), parse(values)
    return None if number is None or inner is None else MapType(ir.DataType(number), inner)
