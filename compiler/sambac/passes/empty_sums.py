"""Reductions and sums over no elements, which are constants.

    ReduceSum(x, axes)  ->  Expand(0)     also ReduceL1, ReduceL2, ReduceSumSquare
    ReduceProd(x, axes) ->  Expand(1)
    ReduceLogSum, ReduceLogSumExp, ReduceMax -> Expand(-inf), or the lowest number of the type
    ReduceMin           ->  Expand(inf), or the largest
    MatMul(a, b)        ->  Expand(0)
    Gemm(a, b)          ->  Expand(0)
    Gemm(a, b, c)       ->  Expand(beta * c)

where x has no elements, a no columns and b no rows, and the shape of the result is known and has
elements. onnxruntime gives a wrong shape to reductions, to all along negative axes; it leaves the
product of a matrix and a vector unwritten, forgets the batch of b, and forgets beta. Opsets before
8 have no Expand, and keep their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute, static_shape

from .base import WITHOUT_ELEMENTS
from .rewriting import Rule, RulePass


def reduction(editor: Editor, node: ir.Node) -> str | None:
    """ReduceSum(x [.., 0, ..]) -> zeros; others alike, each to what it makes of nothing."""
    x, y = node.inputs[0], node.outputs[0]
    if x is None or 0 not in (static_shape(x) or ()):
        return "there is something to reduce"
    if editor.opset < 8 or static_shape(y) is None or y.dtype is None:
        return "the opset has no Expand, or the shape of the result is not known"
    found = np.asarray(_OF_NOTHING[node.op_type](y.dtype.numpy()), y.dtype.numpy())
    _fill(editor, node, editor.initializer(found, f"{y.name}_nothing"))
    return None


def _lowest(dtype: np.dtype) -> object:
    if dtype == np.bool_:
        return False
    return np.iinfo(dtype).min if np.issubdtype(dtype, np.integer) else -np.inf


def _largest(dtype: np.dtype) -> object:
    if dtype == np.bool_:
        return True
    return np.iinfo(dtype).max if np.issubdtype(dtype, np.integer) else np.inf


# What reductions make of no elements, by the type of the result.
_OF_NOTHING: Mapping[str, Callable[[np.dtype], object]] = {
    "ReduceL1": lambda dtype: 0,
    "ReduceL2": lambda dtype: 0,
    "ReduceLogSum": _lowest,
    "ReduceLogSumExp": _lowest,
    "ReduceMax": _lowest,
    "ReduceMin": _largest,
    "ReduceProd": lambda dtype: 1,
    "ReduceSum": lambda dtype: 0,
    "ReduceSumSquare": lambda dtype: 0,
}


def matmul(editor: Editor, node: ir.Node) -> str | None:
    """MatMul(a [.., m, 0], b [.., 0, n]) -> zeros."""
    return _summand(editor, node, -1)


def gemm(editor: Editor, node: ir.Node) -> str | None:
    """Gemm(a [m, 0], b [0, n], c) -> beta * c, in the shape of the result."""
    inner = 0 if int_attribute(node, "transA") else 1
    return _summand(editor, node, inner, input_at(node, 2))


def _summand(editor: Editor, node: ir.Node, inner: int, c: ir.Value | None = None) -> str | None:
    if editor.opset < 8:
        return "the opset has no Expand"
    left, y = node.inputs[0], node.outputs[0]
    factor = None if left is None else static_shape(left)
    shape = static_shape(y)
    if not factor or shape is None or y.dtype is None:
        return "a shape is not known"
    if factor[inner] != 0:
        return "there is something to sum up"
    dtype, beta = y.dtype.numpy(), float_attribute(node, "beta", 1.0)
    stem = y.name
    if c is None or beta == 0:
        content = editor.initializer(np.zeros((), dtype), f"{stem}_zero")
    else:
        scale = editor.initializer(np.asarray(beta, dtype), f"{stem}_beta")
        content = editor.op("Mul", c, scale, like=c)
    _fill(editor, node, content)
    return None


def _fill(editor: Editor, node: ir.Node, content: ir.Value) -> None:
    """Let the result of `node`, whose shape is known, be `content` everywhere."""
    y = node.outputs[0]
    shape = np.asarray(static_shape(y), np.int64)
    editor.replace(node, "Expand", content, editor.initializer(shape, f"{y.name}_shape"))


@dataclass(frozen=True)
class EmptySums(RulePass):
    """Rewrite reductions and products of matrices with no elements to fold."""

    name: ClassVar[str] = "empty_sums"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Gemm": (gemm,),
        "MatMul": (matmul,),
        **dict.fromkeys(_OF_NOTHING, (reduction,)),
    }
