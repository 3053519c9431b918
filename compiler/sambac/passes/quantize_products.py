"""Matrix products of bytes, whose data are quantised as they come.

    MatMul(x, W)      ->  MatMulIntegerToFloat(q, codes of W, s, scales, z, 128)
    MatMul(x, W) + c  ->  the same with c added; c a constant for each column that nothing else adds
    Gemm(x, W, c)     ->  the same                                  no alpha, no beta, no transA

with q, s, z = DynamicQuantizeLinear(x), once for all products that read x, and a scale for each
column of W. No data have to be known: the range of x is that of each run. Codes are unsigned, 128
stands for 0: those products are exact on every host (`variants.byte_products` has others).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape
from sambac.numerics.integers import MIDDLE, by_channel, relative_error

from .base import Pass
from .quantized_layers import LayerNote, Product, products, put_result
from .rewriting import constant, derived_name, has_one_reader

DOMAIN = "com.microsoft"


@dataclass(frozen=True)
class QuantizeProducts(Pass):
    """Let matrix products with constant weights multiply bytes, but for the nodes in `but`."""

    name: ClassVar[str] = "quantize_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({"MatMul", "Gemm"})
    but: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Quantise the products of the main graph."""
        quantizing = _Quantizing(Editor(model))
        found = [*products(model.graph, self.but)]
        for product in found:
            quantizing.put(product)
        return ir.passes.PassResult(model, modified=bool(found))


@dataclass(frozen=True)
class _ColumnWeights:
    """The codes and scales of a matrix, and their relative error."""

    codes: ir.Value
    scales: ir.Value
    error: float


class _Quantizing:
    """Puts products in one model; data and weights are quantised once."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._data: dict[ir.Value, tuple[ir.Value, ...]] = {}
        self._weights: dict[tuple[ir.Value, bool], _ColumnWeights] = {}

    def put(self, product: Product) -> None:
        """Put a product of bytes in the place of `product`."""
        node, out = product.node, product.node.outputs[0]
        self._editor.rewrite(node)
        codes, scale, zero = self._codes_of(product.data)
        stored = self._stored(product)
        bias, last = _bias_of(product)
        made = self._editor.op(
            "MatMulIntegerToFloat",
            *(codes, stored.codes, scale, stored.scales, zero, np.asarray(MIDDLE, np.uint8)),
            *(() if bias is None else (bias,)),
            domain=DOMAIN,
            like=out,
        )
        row = LayerNote(str(node.name), node.op_type, "int8", "dynamic", stored.error)
        row.note(made.producer())
        if last is not node:
            put_result(self._editor, last, made, None)
            self._editor.remove(node)
        else:
            put_result(self._editor, node, made, None if bias is not None else product.added)

    def _codes_of(self, data: ir.Value) -> tuple[ir.Value, ...]:
        if data not in self._data:
            self._data[data] = self._editor.ops("DynamicQuantizeLinear", data, outputs=3)
        return self._data[data]

    def _stored(self, product: Product) -> _ColumnWeights:
        key = product.stored, product.turned
        if key not in self._weights:
            weights, origin = product.weights(), product.stored
            found = by_channel(weights, axis=1)
            make = self._editor.initializer
            self._weights[key] = _ColumnWeights(
                make(found.codes, derived_name(origin, "int8"), [origin]),
                make(found.scales, derived_name(origin, "scales"), [origin]),
                relative_error(found.array(), weights),
            )
        return self._weights[key]


def _bias_of(product: Product) -> tuple[ir.Value | None, ir.Node]:
    """Return what is added for each column, and the operator that adds it."""
    node = product.node
    if product.added is not None:
        return (product.added if _is_bias(product.added, product) else None), node
    result = node.outputs[0]
    if not has_one_reader(result):
        return None, node
    (reader,) = result.consumers()
    if reader.domain != "" or reader.op_type != "Add" or reader.graph is not node.graph:
        return None, node
    others = [value for value in reader.inputs if value is not result]
    if len(others) == 1 and others[0] is not None and _is_bias(others[0], product):
        return others[0], reader
    return None, node


def _is_bias(value: ir.Value, product: Product) -> bool:
    return constant(value) is not None and static_shape(value) == (product.columns,)
