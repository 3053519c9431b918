"""Products of a transposed matrix and a vector, so that onnxruntime computes them as they are.

    MatMul(Transpose(A), v)     ->  MatMul(v, A)
    MatMul(f(Transpose(A)), v)  ->  MatMul(v, f(A))                     f casts, or scales

where the last two axes swap, and what scales is one number: onnxruntime would make a FusedMatMul of
it, which takes v for a row and is wrong. It also moves Transposes, through most operators, to where
they meet others, or such a product. So behind any Transpose

    MatMul(A, v)  ->  Squeeze(MatMul(A, Unsqueeze(v)))
    MatMul(A, x)  ->  MatMul(Reshape(A, as it is), x)                   x of unknown rank
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, reads, static_shape
from sambac.graph.origins import is_host_cast, note_host_cast
from sambac.passes.rewriting import Rule, RulePass, axes_for, made_by

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
    if right.shape is None or len(right.shape) != 1:
        return "the right operand is no vector, or has an unknown rank"
    for step in reversed(steps):
        matrix = _done(editor, step, matrix)
    editor.replace(node, "MatMul", right, matrix)
    return None


def keep_matrix(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(A, v) -> Squeeze(MatMul(A, Unsqueeze(v))), where A may be transposed."""
    left, right, result = *node.inputs, node.outputs[0]
    if left is None or right is None or (left.shape is not None and len(left.shape) < _MATRIX):
        return "the left operand is no matrix"
    if right.shape is not None and len(right.shape) != 1:
        return "the right operand is no vector"
    if not _is_behind_transpose(left):
        return "nothing is transposed before it"
    if right.shape is None:
        node.replace_input_with(0, _as_it_is(editor, left))
        return None
    column = ir.val("", right.dtype, ir.Shape([*right.shape, 1]))
    rows = None if left.shape is None else ir.Shape([*left.shape[:-1], 1])
    product = ir.val("", result.dtype, rows)
    made = editor.op("MatMul", left, _column(editor, right, like=column), like=product)
    last = -1 if left.shape is None else len(left.shape) - 1
    operands, attributes = axes_for(editor, [last])
    editor.replace(node, "Squeeze", made, *operands, **attributes)
    return None


def _as_it_is(editor: Editor, value: ir.Value) -> ir.Value:
    """Return `value` behind a Reshape, through which onnxruntime does not look."""
    if value.shape is None:
        return editor.op("Reshape", value, editor.op("Shape", value), like=value)
    sizes = editor.initializer(np.zeros(len(value.shape), np.int64), f"{value.name}_sizes")
    return editor.op("Reshape", value, sizes, like=value)


def _column(editor: Editor, vector: ir.Value, like: ir.Value) -> ir.Value:
    operands, attributes = axes_for(editor, [1])
    return editor.op("Unsqueeze", vector, *operands, like=like, **attributes)


def _is_behind_transpose(value: ir.Value) -> bool:
    """Tell whether a Transpose makes `value`, or what it is made of."""
    seen: set[ir.Node] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop().producer()
        if node is None or node in seen:
            continue
        if node.op_type == "Transpose":
            return True
        seen.add(node)
        waiting.extend(reads(node))
    return False


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
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"MatMul": (put_vector_first, keep_matrix)}
