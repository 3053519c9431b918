"""Sums of products whose operands onnxruntime would turn, and end the process without elements.

    Einsum("bij,bkj->bik", x, y)  ->  Einsum("bij,bjk->bik", x, Transpose(y))

where an axis of `y` may have no elements. The kernel turns the axes of an operand into the order in
which the equation first has their letters, and divides by their sizes as it does. Transpose divides
by none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.equations import equation_of
from sambac.graph.nodes import static_shape
from sambac.passes.rewriting import Rule, RulePass


def put_in_order(editor: Editor, node: ir.Node) -> str | None:
    """Einsum(x, y) -> Einsum(x, Transpose(y))."""
    equation = equation_of(node)
    order = [*dict.fromkeys("".join(equation.terms))]
    operands, spelled = [], []
    for value, term in zip(node.inputs, equation.terms, strict=True):
        turn = sorted(range(len(term)), key=lambda axis: order.index(term[axis]))
        moves = turn != [*range(len(term))] and term.isalpha() and _may_be_empty(value)
        operands.append(editor.op("Transpose", value, perm=turn) if moves else value)
        spelled.append("".join(term[axis] for axis in turn) if moves else term)
    if spelled == equation.terms:
        return "the letters are in order, or the operands have elements"
    editor.replace(node, "Einsum", *operands, equation=str(replace(equation, terms=spelled)))
    return None


def _may_be_empty(value: ir.Value | None) -> bool:
    shape = static_shape(value)
    return shape is None or 0 in shape


@dataclass(frozen=True)
class OrderLetters(RulePass):
    """Turn operands of Einsum before it, where it would end the process if they were empty."""

    name: ClassVar[str] = "order_letters"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Einsum": (put_in_order,)}
