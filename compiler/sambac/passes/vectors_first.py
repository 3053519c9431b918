"""Products of a transposed matrix and a vector, so that onnxruntime computes them as they are.

    MatMul(Transpose(A), v)     ->  MatMul(v, A)
    MatMul(f(Transpose(A)), v)  ->  MatMul(v, f(A))                     f casts, or scales
    MatMul(f(Transpose(A)), x)  ->  MatMul(Concat(f(Transpose(A))), x)  x of unknown rank

where the last two axes swap, and what scales is one number: onnxruntime would make a FusedMatMul of
it, which takes v for a row and is wrong. Through a Concat of one operand it does not look.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, static_shape
from sambac.graph.origins import is_host_cast, note_host_cast

from .rewriting import Rule, RulePass, made_by

_MATRIX = 2


@dataclass(frozen=True)
class _Elementwise:
    """An operator that gives each element of its operand `at` a value of its own, in its place."""

    node: ir.Node
    at: int


def put_vector_first(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(f(Transpose(A)), v) -> MatMul(v, f(A))."""
    left, right = node.inputs
    steps: list[_Elementwise] = []
    value = left
    while (step := _step(value)) is not None:
        steps.append(step)
        value = step.node.inputs[step.at]
    turn = made_by(value, "Transpose")
    matrix = turn.inputs[0] if turn is not None else None
    if turn is None or matrix is None or left is None or right is None or not _swaps_last(turn):
        return "the left operand is no transposed matrix"
    if right.shape is None:
        node.replace_input_with(0, editor.op("Concat", left, like=left, axis=0))
        return None
    if len(right.shape) != 1:
        return "the right operand is no vector"
    for step in reversed(steps):
        matrix = _done(editor, step, matrix)
    editor.replace(node, "MatMul", right, matrix)
    return None


def _step(value: ir.Value | None) -> _Elementwise | None:
    """Return what casts or scales `value`; None if nothing does."""
    node = made_by(value, "Cast", "Div", "Mul")
    if node is None or node.op_type == "Cast":
        return None if node is None else _Elementwise(node, 0)
    for at in (0, 1) if node.op_type == "Mul" else (0,):
        number = static_shape(node.inputs[1 - at])
        if number is not None and len(number) <= _MATRIX and prod(number) == 1:
            return _Elementwise(node, at)
    return None


def _done(editor: Editor, step: _Elementwise, matrix: ir.Value) -> ir.Value:
    """Do the same to `matrix`."""
    node, operands = step.node, list(step.node.inputs)
    operands[step.at] = matrix
    like = ir.val("", node.outputs[0].dtype, matrix.shape)
    made = editor.op(node.op_type, *operands, like=like, **attributes_of(node))
    if is_host_cast(node):
        note_host_cast(made)
    return made


def _swaps_last(turn: ir.Node) -> bool:
    """Tell whether a Transpose is known to swap the last two axes, and no others."""
    given, read = turn.attributes.get("perm"), turn.inputs[0]
    if given is None:
        return read is not None and read.shape is not None and len(read.shape) == _MATRIX
    order = tuple(given.as_ints())
    rank = len(order)
    return rank >= _MATRIX and order == (*range(rank - 2), rank - 1, rank - 2)


@dataclass(frozen=True)
class VectorsFirst(RulePass):
    """Keep onnxruntime from fusing transposed matrices into products with vectors."""

    name: ClassVar[str] = "vectors_first"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Transpose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MatMul": (put_vector_first,)}
