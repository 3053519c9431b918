"""Products of two matrices in the formulation that was chosen for their sizes.

    Gemm(G, X, transA=1)     ->  Gemm(Transpose(G), X)
    Gemm(G, X, transA=1)     ->  Transpose(Gemm(Transpose(X), G))
    Gemm(X, W, b, transB=1)  ->  Transpose(Gemm(W, X, Reshape(b), transB=1))

as `passes/select_kernels/choose_products.py` noted it. It costs the memory of a turned operand or
result, of a thread that computes: a program for processors alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.decisions import noted_formulation
from sambac.graph.editor import Editor, shape_of
from sambac.ops.gradients.products import PRODUCT
from sambac.ops.gradients.rules import reshape
from sambac.passes.base import Pass
from sambac.passes.rewriting import present
from sambac.passes.select_kernels.choose_products import product_at


@dataclass(frozen=True)
class WriteProducts(Pass):
    """Write products as is noted on them.

    onnxruntime makes one of equal Transposes.
    """

    name: ClassVar[str] = "write_products"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the products of `model`, subgraphs included."""
        editor = Editor(model)
        modified = False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                modified |= _written(editor, node)
        return ir.passes.PassResult(model, modified=modified)


def _written(b: Editor, node: ir.Node) -> bool:
    """Write one product as it is noted; tell whether anything is."""
    name, of = noted_formulation(node), product_at(node)
    if name is None or of is None:
        return False
    b.rewrite(node)
    left, right, *added = present(node.inputs)
    out = shape_of(node.outputs[0])
    rows = reshape(b, left, of.left)
    made = PRODUCT.write(b, PRODUCT.form(name), of, (rows, right, *added))
    return b.bypass(node, reshape(b, made, out)) is None
