"""Which formulation products of two matrices have in programs for processors.

    Gemm(A, B, C), MatMul(A, B), FusedMatMul(A, B)    of matrices that a program makes,
                                                      rows of A in front as one axis

The products stay as they are: what is chosen is noted on them, and written where the program of a
section for processors is made (`variants/products.py`). A device multiplies as operands lie, and
has no room for turned ones. It runs behind all passes that rewrite products.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.decisions import Decisions, note_formulation
from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, static_shape
from sambac.ops.gradients.products import PRODUCT, MatrixProduct
from sambac.passes.base import Pass
from sambac.passes.rewriting import present

from .fuse_products import BATCHES

_PRODUCTS = frozenset({("", "Gemm"), ("", "MatMul"), ("com.microsoft", "FusedMatMul")})


@dataclass(frozen=True)
class ChooseProducts(Pass):
    """Note on products how `decisions` write them, or the guess of costs does."""

    name: ClassVar[str] = "choose_products"
    operators: ClassVar[frozenset[str]] = frozenset(op_type for _, op_type in _PRODUCTS)
    decisions: Decisions = field(default_factory=Decisions)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Choose for the products of `model`, subgraphs included."""
        editor = Editor(model, decisions=self.decisions)
        modified = False
        for graph in model.graphs():
            for node in graph:
                of = product_at(node)
                if of is not None and not any(map(_is_constant, node.inputs[:2])):
                    modified |= _noted(editor, node, of)
        return ir.passes.PassResult(model, modified=modified)


def _noted(b: Editor, node: ir.Node, of: MatrixProduct) -> bool:
    """Note what is chosen for a product, unless that is to leave it as it is."""
    b.rewrite(node)
    form = PRODUCT.choose(b, of)
    if form is PRODUCT.forms[-1]:
        return False
    note_formulation(node, form.name)
    return True


def product_at(node: ir.Node) -> MatrixProduct | None:
    """Return the product of two matrices that a node is; None if it is none, or sizes are open."""
    if (node.domain, node.op_type) not in _PRODUCTS or float_attribute(node, "beta", 1.0) != 1.0:
        return None
    left, right, *added = (static_shape(value) for value in present(node.inputs))
    out = node.outputs[0]
    turned = int_attribute(node, "transA") == 1, int_attribute(node, "transB") == 1
    if left is None or right is None or None in added or 0 in (*left, *right):
        return None
    if len(left) < 2 or len(right) != 2:
        return None
    if out.dtype != ir.DataType.FLOAT or any(int_attribute(node, name) for name in BATCHES):
        return None
    if turned[0] and len(left) > 2:
        return None
    rows, terms = prod(left[:-1]), left[-1]
    if turned[0]:
        rows, terms = terms, rows
    columns = right[0] if turned[1] else right[1]
    return MatrixProduct(
        rows, terms, columns, turned, out.dtype, scale=float_attribute(node, "alpha", 1.0)
    )


def _is_constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None
