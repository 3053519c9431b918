"""Casts and quantisations that onnxruntime's kernels get wrong, by others that they get right.

Kernels round to the nearest number of 4 bits, where ONNX cuts, and take -0 of 8 bits for true:

    Cast(x, int4)    ->  Cast(Cast(x, int32), int4)     also uint4
    Cast(x, bool)    ->  Cast(Cast(x, float32), bool)   x in 8 bits

Without saturation, what rounds to more than float8 has is infinity or NaN. It is NaN where it
should be infinity, and the largest number where the bits are those of a NaN:

    Cast(x, float8)  ->  Cast(Where(x >= limit, beyond, Where(x <= -limit, -beyond, x)), float8)
    QuantizeLinear(x, s)  ->  Cast(x / DequantizeLinear(1, s), float8), likewise

And quotients of float16 beyond 2^31, infinite ones too, become the number at the other end:

    QuantizeLinear(x, s, z)  ->  QuantizeLinear(Cast(x, float32), Cast(s, float32), z)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, input_at, int_attribute
from sambac.passes.base import FEW_BITS
from sambac.passes.rewriting import Rule, RulePass, made_by, scalar

_FLOAT = ir.DataType.FLOAT

_FOUR_BITS = frozenset({ir.DataType.INT4, ir.DataType.UINT4})

_SIGNED_ZEROS = frozenset({ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E5M2})
"""Types of 8 bits that have a -0."""

_BEYOND: Mapping[ir.DataType, tuple[float, float]] = {
    ir.DataType.FLOAT8E4M3FN: (float(np.nextafter(np.float32(464), np.float32(465))), np.nan),
    ir.DataType.FLOAT8E5M2: (61440.0, np.inf),
}
"""From which number of float32 on a type has none to round to, and what it has instead."""


def _whole(editor: Editor, node: ir.Node) -> str | None:
    """Cut numbers before they are of 4 bits."""
    x = node.inputs[0]
    if x is None or x.dtype is None or node.outputs[0].dtype not in _FOUR_BITS:
        return "the result has more bits"
    if not x.dtype.is_floating_point():
        return "they are whole numbers"
    whole = editor.op("Cast", x, to=int(ir.DataType.INT32))
    editor.replace(node, "Cast", whole, **attributes_of(node))
    return None


def _truth(editor: Editor, node: ir.Node) -> str | None:
    """Compare numbers of 8 bits with 0 in more bits."""
    x = node.inputs[0]
    if x is None or x.dtype not in _SIGNED_ZEROS or node.outputs[0].dtype != ir.DataType.BOOL:
        return "it compares as it should"
    editor.replace(node, "Cast", editor.op("Cast", x, to=int(_FLOAT)), **attributes_of(node))
    return None


def _unsaturated(editor: Editor, node: ir.Node) -> str | None:
    """Name what is beyond the numbers of a type of 8 bits."""
    x, dtype = node.inputs[0], node.outputs[0].dtype
    if x is None or dtype is None or dtype not in _BEYOND or int_attribute(node, "saturate", 1):
        return "it is saturated, or rounds as it should"
    limit, beyond = _BEYOND[dtype]
    named = made_by(x, "Where")
    found = scalar(input_at(named, 1)) if named is not None else None
    if found is not None and np.array_equal(found, beyond, equal_nan=True):
        return "it is named"
    for compare, sign in (("LessOrEqual", -1), ("GreaterOrEqual", 1)):
        x = x if x.dtype == _FLOAT else editor.op("Cast", x, to=int(_FLOAT))
        end, instead = (np.asarray(sign * value, np.float32) for value in (limit, beyond))
        x = editor.op("Where", editor.op(compare, x, end), instead, x, like=x)
    editor.replace(node, "Cast", x, **attributes_of(node))
    return None


def _quotient(editor: Editor, node: ir.Node) -> str | None:
    """Divide in front of the cast to a type of 8 bits."""
    x, scale, dtype = node.inputs[0], node.inputs[1], node.outputs[0].dtype
    if x is None or dtype is None or dtype not in _BEYOND or int_attribute(node, "saturate", 1):
        return "it is saturated, or rounds as it should"
    where = {k: v for k, v in attributes_of(node).items() if k in ("axis", "block_size")}
    ones = editor.op("Expand", np.asarray(1, np.int8), editor.op("Shape", x))
    scales = editor.op("DequantizeLinear", ones, scale, **where)
    quotient = editor.op("Div", x, scales, like=x)
    cast = editor.replace(node, "Cast", quotient, to=int(dtype), saturate=0)
    editor.rewrite(cast)
    return _unsaturated(editor, cast)


def _wide_quotient(editor: Editor, node: ir.Node) -> str | None:
    """Let numbers of float16 be divided and rounded as those of float32."""
    x, scale, *zero = node.inputs
    if x is None or scale is None or x.dtype != ir.DataType.FLOAT16:
        return "they are none of float16"
    x, scale = (
        value if value.dtype == _FLOAT else editor.op("Cast", value, to=int(_FLOAT))
        for value in (x, scale)
    )
    replaced = editor.replace(node, "QuantizeLinear", x, scale, *zero, **attributes_of(node))
    editor.rewrite(replaced)
    _quotient(editor, replaced)
    return None


@dataclass(frozen=True)
class ExactCasts(RulePass):
    """Write casts, and quantisations, in those that onnxruntime rounds as ONNX says."""

    name: ClassVar[str] = "exact_casts"
    operators: ClassVar[frozenset[str] | None] = frozenset({"QuantizeLinear", FEW_BITS})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Cast": (_whole, _truth, _unsaturated),
        "QuantizeLinear": (_wide_quotient, _quotient),
    }
