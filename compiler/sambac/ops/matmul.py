"""Matrix products: every output element is a dot product over the contracted dimension."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from sambac.graph.equations import equation_of
from sambac.graph.nodes import input_at, int_attribute, modelled_shape

from .family import QUANTIZED, Family, FlopRule, dim, each, elements
from .gradients import matmul as matmul_gradients
from .gradients.matmul import too_large, unknown_activation


def _product(node: ir.Node) -> int:
    """2 * outputs * K, K the last dimension of A, or its row count when `transA` is set."""
    rows = 0 if int_attribute(node, "transBatchA") else -2
    axis = rows if int_attribute(node, "transA") else -1
    return 2 * elements(node.outputs[0]) * dim(input_at(node, 0), axis)


def _by_attribute(node: ir.Node) -> int:
    """2 * outputs * K where K is an attribute, because the weight is packed."""
    return 2 * elements(node.outputs[0]) * int_attribute(node, "K")


def _contraction(node: ir.Node) -> int:
    """2 * the product of all dimensions that the equation names."""
    sizes: dict[str, int] = {}
    for term, value in zip(equation_of(node).terms, node.inputs, strict=False):
        dims = modelled_shape(value)
        if dims is None or "." in term:
            return 2 * elements(node.outputs[0])
        sizes.update(zip(term, dims, strict=False))
    return 2 * prod(sizes.values())


def _cubic(numerator: int, denominator: int) -> FlopRule:
    """A share of n^3 for each square matrix of the input."""

    def rule(node: ir.Node) -> int:
        matrices = input_at(node, 0)
        return numerator * elements(matrices) * dim(matrices, -1) // denominator

    return rule


def _distances(node: ir.Node) -> int:
    """3 * pairs * length: a difference, a square and a sum per component."""
    return 3 * elements(node.outputs[0]) * dim(input_at(node, 0), -1)


def _experts(node: ir.Node) -> int:
    """4 * tokens * chosen experts * hidden * inner: two layers for each chosen expert."""
    inner = dim(input_at(node, 2), 1)
    return 4 * elements(node.outputs[0]) * int_attribute(node, "k", 1) * inner


_MICROSOFT_PRODUCTS = """
    FusedMatMul TransposeMatMul FusedGemm QGemm MatMulInteger16 MatMulIntegerToFloat
    DynamicQuantizeMatMul MatMulFpQ4 SparseToDenseMatMul
"""

_OF_CODES = """
    DynamicQuantizeMatMul MatMulBnb4 MatMulFpQ4 MatMulIntegerToFloat MatMulNBits QGemm QMoE
"""

FAMILY = Family(
    "matrix product",
    {
        **each("MatMul Gemm MatMulInteger QLinearMatMul", _product),
        **each("Einsum", _contraction),
        **each("Det", _cubic(2, 3)),
        **each(_MICROSOFT_PRODUCTS, _product, "com.microsoft"),
        **each("MatMulNBits MatMulBnb4", _by_attribute, "com.microsoft"),
        **each("Inverse", _cubic(2, 1), "com.microsoft"),
        **each("CDist", _distances, "com.microsoft"),
        **each("MoE QMoE", _experts, "com.microsoft"),
    },
    anchor=True,
    second={"QLinearMatMul": 3, "com.microsoft.QGemm": 3},
    packed=frozenset({"com.microsoft.MatMulNBits"}),
    gradients=matmul_gradients.GRADIENTS,
    constant=frozenset({"MatMulInteger"}),
    undifferentiable={
        "Det": too_large,
        "QLinearMatMul": QUANTIZED,
        **dict.fromkeys(each(_OF_CODES, _product, "com.microsoft"), QUANTIZED),
        "com.microsoft.FusedGemm": unknown_activation,
    },
)
