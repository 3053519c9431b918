"""Heads of examples as two axes, where a module has made one of them for a product of matrices.

With R a Reshape of [B, H, ..] to [B * H, ..], of known sizes,

    MatMul(R(x), R(y))                 ->  R(MatMul(x, y))
    Transpose(R(x), 0, 2, 1)           ->  R(Transpose(x, 0, 1, 3, 2))
    Transpose(R(x), 1, 0, 2)           ->  Reshape(Transpose(x, 2, 0, 1, 3))
    Softmax(R(x)), R(x) * number, ..   ->  R(Softmax(x)), R(x * number), ..
    R(x) + mask                        ->  R(x + mask)          mask [1, ..] or [B * H, ..]

where nothing else reads what is between. The numbers are the same; behind it, attention has the
form that it has everywhere else, and becomes one operator (`fuse_attention`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by

from .merge_chains import permutation

_MERGED = 3  # axes behind a Reshape of four


def spread_product(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(R(x), R(y)) -> R(MatMul(x, y))."""
    one, two = (_spread(value) for value in node.inputs)
    if one is None or two is None or _heads(one) != _heads(two):
        return "not both operands are heads of examples"
    return _merge(editor, node, editor.op("MatMul", one, two))


def spread_turn(editor: Editor, node: ir.Node) -> str | None:
    """Transpose(R(x)) -> R(Transpose(x, 0, 1, 3, 2)), or what puts the tokens first."""
    x, order = _spread(node.inputs[0]), permutation(node)
    if x is None or order not in ((0, 2, 1), (1, 0, 2)):
        return "it turns no matrices of heads over, and no heads and tokens"
    turn = (0, 1, 3, 2) if order == (0, 2, 1) else (2, 0, 1, 3)
    if order == (1, 0, 2) and _heads(x)[0] == 1:
        turn = (0, 2, 1, 3)  # of one example: as attention has it
    return _merge(editor, node, editor.op("Transpose", x, perm=turn))


def spread_softmax(editor: Editor, node: ir.Node) -> str | None:
    """Softmax(R(x)) -> R(Softmax(x))."""
    x = _spread(node.inputs[0])
    last = int_attribute(node, "axis", -1) in (-1, _MERGED - 1)
    if x is None or not last or editor.opset < _PER_AXIS:
        return "it is not along rows of heads"
    return _merge(editor, node, editor.op("Softmax", x, axis=-1))


def spread_unary(editor: Editor, node: ir.Node) -> str | None:
    """f(R(x)) -> R(f(x))."""
    x = _spread(node.inputs[0])
    if x is None:
        return "it does not read heads"
    return _merge(editor, node, editor.op(node.op_type, x, like=x, **attributes_of(node)))


def spread_pair(editor: Editor, node: ir.Node) -> str | None:
    """f(R(x), y) -> R(f(x, y)), and f(y, R(x)) -> R(f(y, x))."""
    for at, value in enumerate(node.inputs):
        x = _spread(value)
        other = None if x is None else _beside(editor, x, node.inputs[1 - at])
        if x is not None and other is not None:
            operands = (x, other) if at == 0 else (other, x)
            return _merge(editor, node, editor.op(node.op_type, *operands, like=x))
    return "no operand is heads of examples beside what fits them"


_PER_AXIS = 13
"""The first opset whose Softmax is along one axis, not along all from one on."""


def _spread(value: ir.Value | None) -> ir.Value | None:
    """Return x [B, H, ..] if `value` [B * H, ..] is R(x) and read once."""
    reshape = made_by(value, "Reshape")
    source = None if reshape is None else reshape.inputs[0]
    before, after = static_shape(source), static_shape(value)
    if value is None or before is None or after is None or not has_one_reader(value):
        return None
    spread = len(before) == _MERGED + 1 and len(after) == _MERGED and before[2:] == after[1:]
    return source if spread and 0 not in before else None


def _heads(value: ir.Value) -> tuple[int, ...]:
    return (static_shape(value) or ())[:2]


def _beside(editor: Editor, x: ir.Value, other: ir.Value | None) -> ir.Value | None:
    """Return `other` as an operand beside `x` [B, H, L, S] instead of beside R(x)."""
    sizes, shape = static_shape(other), static_shape(x)
    if other is None or sizes is None or shape is None or len(sizes) > _MERGED:
        return None
    if len(sizes) < _MERGED or sizes[0] == 1:
        fits = all(size in (1, wide) for size, wide in zip(sizes[::-1], shape[::-1], strict=False))
        return other if fits else None
    if sizes[0] != shape[0] * shape[1] or any(
        size not in (1, wide) for size, wide in zip(sizes[1:], shape[2:], strict=True)
    ):
        return None
    return editor.op("Reshape", other, [*shape[:2], *sizes[1:]])


def _merge(editor: Editor, node: ir.Node, spread: ir.Value) -> str | None:
    editor.replace(node, "Reshape", spread, [*(static_shape(node.outputs[0]) or ())])
    return None


@dataclass(frozen=True)
class SpreadHeads(RulePass):
    """Calculate with heads as an axis of their own."""

    name: ClassVar[str] = "spread_heads"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Softmax"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "MatMul": (spread_product,),
        "Transpose": (spread_turn,),
        "Softmax": (spread_softmax,),
        "ThresholdedRelu": (spread_unary,),
        **dict.fromkeys(("Add", "Mul", "Div", "Sub"), (spread_pair,)),
    }
