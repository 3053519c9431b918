"""Axes that a constant adds to what it meets, added by an operator of their own.

    x + c  ->  Unsqueeze(x + c')    c [1, 1, 1, 4], c' [4], x [3, 4]
    1 / x  ->  Concat(1 / x)        1 [1], x of unknown rank

also Sub, Mul, Div and Pow of floats, where all axes in front are of one element. onnxruntime makes
one operator of many forms (normalisations, GELU, products with a factor, inverses) for constants
with any number of axes, of which the result then has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.passes.rewriting import Rule, RulePass, axes_for, constant

_FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE})


def spell_inverse(editor: Editor, node: ir.Node) -> str | None:
    """Hide an inverse that may have axes of its own from the product that reads it."""
    one, x, result = *node.inputs, node.outputs[0]
    array = constant(one)
    if x is None or x.shape is not None or array is None or array.size != 1 or not array.ndim:
        return "it is no inverse of what has an unknown rank"
    like = ir.Value(name="", type=result.type, shape=result.shape)
    editor.replace(node, "Concat", editor.op("Div", one, x, like=like), axis=0)
    return None


def spell_rank(editor: Editor, node: ir.Node) -> str | None:
    """Put the axes that only a constant has in front of a result that has none of them."""
    operands: list[ir.Value | None] = list(node.inputs)
    for at, x in enumerate(reversed(operands)):
        given, array = operands[at], constant(operands[at])
        if x is None or x.shape is None or given is None or array is None:
            continue
        more = array.ndim - len(x.shape)
        if x.dtype not in _FLOATS or more <= 0 or set(array.shape[:more]) != {1}:
            continue
        operands[at] = editor.initializer(
            array.reshape(array.shape[more:]), f"{given.name}_spelled", origin=(given,)
        )
        result = node.outputs[0]
        sizes = None if result.shape is None else ir.Shape(result.shape[more:])
        like = ir.Value(name="", type=result.type, shape=sizes)
        inner = editor.op(node.op_type, *operands, like=like)
        axes, attributes = axes_for(editor, range(more))
        editor.replace(node, "Unsqueeze", inner, *axes, **attributes)
        return None
    return "no constant has more axes, of one element each"


@dataclass(frozen=True)
class SpellRanks(RulePass):
    """Add the axes that only constants have by operators of their own."""

    name: ClassVar[str] = "spell_ranks"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        **dict.fromkeys(("Add", "Mul", "Pow", "Sub"), (spell_rank,)),
        "Div": (spell_rank, spell_inverse),
    }
