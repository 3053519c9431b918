"""Operators without elements: there is nothing to compute, or the sum of nothing, which is 0.

    f(x, ...) -> y, z   ->   y = Expand(nothing), z = Expand(nothing)

where the shapes of all results that are read are known and have a 0. Several of onnxruntime's
kernels fail for them (Split, Pad, MatMul of an empty batch, those that divide by a size), and it
may remove an operator that expands one element to none.

Sums over no elements are zeros:

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

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at, int_attribute, redirect, static_shape

from .base import WITHOUT_ELEMENTS, Pass
from .rewriting import Rule, RulePass, constant, present

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EmptyResults(Pass):
    """Put constants in the place of operators whose results have no elements."""

    name: ClassVar[str] = "empty_results"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_ELEMENTS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        editor = Editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                if node.graph is not None and not _is_constant(node):
                    modified |= _emptied(editor, node)
        return ir.passes.PassResult(model, modified=modified)


_OF_CONSTANTS = frozenset({"Constant", "ConstantOfShape", "Expand"})


def _is_constant(node: ir.Node) -> bool:
    return node.op_type in _OF_CONSTANTS and all(
        constant(value) is not None for value in present(node.inputs)
    )


def _emptied(editor: Editor, node: ir.Node) -> bool:
    """Do so for `node`; return whether its results are empty."""
    read = [out for out in node.outputs if out.uses() or out.is_graph_output()]
    shapes = [static_shape(out) for out in read]
    known = [shape for shape in shapes if shape is not None and 0 in shape]
    if not read or len(known) != len(read) or not all(_has_numbers(out) for out in read):
        return False
    editor.rewrite(node)
    for out, shape in zip(read, known, strict=True):
        redirect(out, _nothing(editor, out, shape))
    editor.remove(node)
    logger.debug("empty_results: rewrote %s", node.name)
    return True


def _has_numbers(out: ir.Value) -> bool:
    return isinstance(out.type, ir.TensorType) and out.dtype != ir.DataType.STRING


def _nothing(editor: Editor, out: ir.Value, shape: Sequence[int]) -> ir.Value:
    assert out.dtype is not None
    content = editor.initializer(np.zeros(shape, out.dtype.numpy()), f"{out.name}_none")
    if editor.opset < 8:  # which has no Expand
        return editor.op("Identity", content, like=out)
    target = editor.initializer(np.asarray(shape, np.int64), f"{out.name}_shape")
    return editor.op("Expand", content, target, like=out)


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
