"""Matrix products of bytes, whose data are quantised as they come.

    MatMul(x, W)      ->  MatMulIntegerToFloat(q, codes of W, s, scales, z, 128)
    MatMul(x, W) + c  ->  the same with c added; c a constant for each column that nothing else adds
    Gemm(x, W, c)     ->  the same                                  no alpha, no beta, no transA

with q, s, z = DynamicQuantizeLinear(x), once for all products that read x, and a scale for each
column of W. No data have to be known: the range of x is that of each run. Codes are unsigned, 128
stands for 0: those products are exact on every host (`variants.byte_products` has others).

A few large numbers leave few codes to all others. Where that is too coarse, each row has a scale of
its own, or the rest that the codes leave is multiplied, too:

    rows         MatMul(x, W)  ->  r * product of bytes of (x / r)        r = max |x| of each row
    two-bytes    MatMul(x, W)  ->  product of bytes of x + product of bytes of x - x'

with x' = DequantizeLinear(q, s, z). Where the product of float32 takes 786 us and that of bytes
231 (128x1376 by 1376x512, one thread), these take 281 and 501.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of
from sambac.numerics.integers import MIDDLE, by_channel, relative_error
from sambac.passes.base import Pass
from sambac.passes.rewriting import derived_name

from .quantized_layers import (
    LayerNote,
    Product,
    Way,
    Ways,
    bias_of,
    in_float32,
    products,
    put_result,
)

DOMAIN = "com.microsoft"
_AXES_ARE_INPUTS = 18
_LEAST = np.asarray(1e-30, np.float32)  # so that rows of zeros stay zeros
_Codes = tuple[ir.Value, ...]


@dataclass(frozen=True)
class QuantizeProducts(Pass):
    """Let matrix products with constant weights multiply bytes, in the `ways` of their nodes."""

    name: ClassVar[str] = "quantize_products"
    operators: ClassVar[frozenset[str] | None] = frozenset({"MatMul", "Gemm"})
    ways: Ways = field(default_factory=dict, hash=False)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Quantise the products of the main graph."""
        quantizing = _Quantizing(Editor(model))
        found = [*products(model.graph, in_float32(self.ways))]
        for product in found:
            quantizing.put(product, self.ways.get(str(product.node.name)))
        return ir.passes.PassResult(model, modified=bool(found))


@dataclass(frozen=True)
class _ColumnWeights:
    """The codes and scales of a matrix, and their relative error."""

    codes: ir.Value
    scales: ir.Value
    error: float


@dataclass(frozen=True)
class _Writing:
    """Writes the products of bytes of one `product`, with `row` noted at each."""

    editor: Editor
    product: Product
    stored: _ColumnWeights
    row: LayerNote

    def multiplied(self, codes: _Codes, bias: ir.Value | None = None) -> ir.Value:
        """Multiply `codes`, with their scale and zero, by the weights, and add the bias."""
        data, scale, zero = codes
        made = self.editor.op(
            "MatMulIntegerToFloat",
            *(data, self.stored.codes, scale, self.stored.scales, zero),
            *(np.asarray(MIDDLE, np.uint8), *(() if bias is None else (bias,))),
            domain=DOMAIN,
            like=self.product.node.outputs[0],
        )
        self.row.note(made.producer())
        return made


class _Quantizing:
    """Puts products in one model; data and weights are quantised once."""

    def __init__(self, editor: Editor) -> None:
        self._editor = editor
        self._codes: dict[ir.Value, _Codes] = {}
        self._rests: dict[ir.Value, _Codes] = {}
        self._rows: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self._weights: dict[tuple[ir.Value, bool], _ColumnWeights] = {}

    def put(self, product: Product, way: Way | None) -> None:
        """Put products of bytes in the place of `product`."""
        node = product.node
        self._editor.rewrite(node)
        stored = self._stored(product)
        row = LayerNote(str(node.name), node.op_type, "int8", way or "dynamic", stored.error)
        writing = _Writing(self._editor, product, stored, row)
        if way == "rows":
            data, largest = self._in_rows(product.data)
            made = self._editor.op("Mul", writing.multiplied(self._codes_of(data)), largest)
            put_result(self._editor, node, made, product.added)
            return
        bias, last = bias_of(product)
        made = writing.multiplied(self._codes_of(product.data), bias)
        if way == "two-bytes":
            rest = writing.multiplied(self._rest_of(product.data))
            made = self._editor.op("Add", made, rest, like=made)
        if last is not node:
            put_result(self._editor, last, made, None)
            self._editor.remove(node)
        else:
            put_result(self._editor, node, made, None if bias is not None else product.added)

    def _codes_of(self, data: ir.Value) -> _Codes:
        """Return codes, scale and zero of `data`."""
        if data not in self._codes:
            self._codes[data] = self._editor.ops("DynamicQuantizeLinear", data, outputs=3)
        return self._codes[data]

    def _rest_of(self, data: ir.Value) -> _Codes:
        """Return codes, scale and zero of what the codes of `data` leave."""
        if data not in self._rests:
            coded = self._editor.op("DequantizeLinear", *self._codes_of(data), like=data)
            rest = self._editor.op("Sub", data, coded, like=data)
            self._rests[data] = self._editor.ops("DynamicQuantizeLinear", rest, outputs=3)
        return self._rests[data]

    def _in_rows(self, data: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return `data` over the largest number of each row, and those."""
        if data not in self._rows:
            editor, axes = self._editor, [rank_of(data) - 1]
            size = editor.op("Abs", data, like=data)
            if editor.opset < _AXES_ARE_INPUTS:
                largest = editor.op("ReduceMax", size, axes=axes, keepdims=1)
            else:
                largest = editor.op("ReduceMax", size, axes, keepdims=1)
            largest = editor.op("Max", largest, _LEAST, like=largest)
            self._rows[data] = editor.op("Div", data, largest, like=data), largest
        return self._rows[data]

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
