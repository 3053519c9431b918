"""Sums over no elements, which are zeros.

    ReduceSum(x, axes)  ->  Expand(0)
    MatMul(a, b)        ->  Expand(0)
    Gemm(a, b)          ->  Expand(0)
    Gemm(a, b, c)       ->  Expand(beta * c)

where x has no elements, a no columns and b no rows, and the shape of the result is known and has
elements. onnxruntime gives some of the sums a wrong shape; it leaves the product of a matrix and a
vector unwritten, forgets the batch of b, and forgets beta. Opsets before 8 have no Expand, and keep
their sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute, static_shape

from .base import WITHOUT_ELEMENTS
from .rewriting import Rule, RulePass


def reduce_sum(editor: Editor, node: ir.Node) -> str | None:
    """ReduceSum(x [.., 0, ..]) -> zeros."""
    return _summand(editor, node, None, None)


def matmul(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(a [.., m, 0], b [.., 0, n]) -> zeros."""
    return _summand(editor, node, -1, None)


def gemm(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(a [m, 0], b [0, n], c) -> beta * c, in the shape of the result."""
    inner = 0 if int_attribute(node, "transA") else 1
    return _summand(editor, node, inner, input_at(node, 2))


def _summand(editor: Editor, node: ir.Node, inner: int | None, c: ir.Value | None) -> str | None:
    if editor.opset < 8:
        return "the opset has no Expand"
    left, y = node.inputs[0], node.outputs[0]
    factor = None if left is None else static_shape(left)
    shape = static_shape(y)
    if not factor or shape is None or y.dtype is None:
        return "a shape is not known"
    nothing = 0 in factor if inner is None else factor[inner] == 0
    if not nothing:
        return "there is something to sum up"
    dtype, beta = y.dtype.numpy(), float_attribute(node, "beta", 1.0)
    stem = y.name
    if c is None or beta == 0:
        content = editor.initializer(np.zeros((), dtype), f"{stem}_zero")
    else:
        scale = editor.initializer(np.asarray(beta, dtype), f"{stem}_beta")
        content = editor.op("Mul", c, scale, like=c)
    target = editor.initializer(np.asarray(shape, np.int64), f"{stem}_shape")
    editor.replace(node, "Expand", content, target)
    return None


@dataclass(frozen=True)
class EmptySums(RulePass):
    """Rewrite sums and products of matrices with no elements to sum up."""

    name: ClassVar[str] = "empty_sums"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gemm": (gemm,),
        "MatMul": (matmul,),
        "ReduceSum": (reduce_sum,),
    }
