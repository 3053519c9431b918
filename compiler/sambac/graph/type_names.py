"""Types as onnxruntime spells them: `tensor(float)`, `seq(tensor(int64))`, `optional(...)`."""

from __future__ import annotations

from functools import cache

import onnx_ir as ir

from pef import dtypes


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
    return ""


@cache
def _tensor(dtype: ir.DataType) -> str:
    return "" if dtype == ir.DataType.UNDEFINED else dtypes.spelling(int(dtype))


def parse(spelling: str) -> ir.TypeProtocol | None:
    """Return the type that `spelling` means; None for maps and the like, which onnx_ir lacks."""
    number = dtypes.parse(spelling)
    if number is not None:
        return ir.TensorType(ir.DataType(number))
    kind, _, rest = spelling.partition("(")
    inner = parse(rest[:-1]) if kind in ("seq", "optional") else None
    if inner is None:
        return None
    return ir.SequenceType(inner) if kind == "seq" else ir.OptionalType(inner)
