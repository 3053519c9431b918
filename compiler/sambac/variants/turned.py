"""Products over all samples whose narrower operand is turned before it is multiplied.

The gradient of a layer's weight is G^T X, and onnxruntime's product of a turned left operand turns
it anew, a few rows at a time, for every block of columns of the right one. So

    Gemm(G, X, transA=1)  ->  Gemm(Transpose(G), X)              of G [K, M] and X [K, N]
    Gemm(G, X, transA=1)  ->  Transpose(Gemm(Transpose(X), G))   where N is less than M, and not
                                                                 more than K

Processor time on one thread, beside that of the product as it was, for K = 256 to 4096: 0.7 to 0.85
where both sides have 192 columns and more, 0.6 to 0.95 where X is the narrower one. There is no
gain for fewer than 64 columns of G beside a wider X. It costs the memory of a turned operand, of a
thread that computes: a program for processors alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass, present

_LEAST = 1 << 20
"""Products of two numbers from which on it gains: fewer are done before a Transpose is."""
_NARROWEST, _WIDEST = 64, 128
"""Columns of G, and of X, from which on it gains to turn G."""


def turn_first(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(G, X, transA=1) -> Gemm(Transpose(G), X), or Transpose(Gemm(Transpose(X), G))."""
    operands = present(node.inputs)
    shapes = [static_shape(value) for value in operands]
    if (int_attribute(node, "transA"), int_attribute(node, "transB")) != (1, 0):
        return "the left operand is not the one that is turned"
    if len(operands) != 2 or None in shapes:
        return "it adds something, or its sizes are unknown"
    (terms, rows), (_, columns) = (shape or () for shape in shapes)
    if terms * rows * columns < _LEAST:
        return "it is small"
    scale = {name: value for name, value in attributes_of(node).items() if name == "alpha"}
    left, right = operands
    if columns < rows and columns <= terms:
        turned = editor.op("Transpose", right, perm=[1, 0])
        product = editor.op("Gemm", turned, left, **scale)
        editor.replace(node, "Transpose", product, perm=[1, 0])
        return None
    if rows < _NARROWEST or columns < _WIDEST:
        return "the left operand is narrow"
    turned = editor.op("Transpose", left, perm=[1, 0])
    editor.replace(node, "Gemm", turned, right, **scale)
    return None


@dataclass(frozen=True)
class TurnFirst(RulePass):
    """Turn the narrower operand of products over all samples by an operator of its own.

    onnxruntime makes one of equal Transposes.
    """

    name: ClassVar[str] = "turn_first"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Gemm": (turn_first,)}
