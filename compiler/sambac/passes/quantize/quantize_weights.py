"""Weights of matrix products in 4 or 8 bits, in blocks with scales of their own.

    MatMul(x, W)      ->  MatMulNBits(x, codes of W, scales)
    MatMul(x, W) + c  ->  MatMulNBits(x, codes of W, scales, c)       c a constant for each column
    Gemm(x, W, c)     ->  the same                                    no alpha, no beta, no transA

for constant W, of which there may be a transposed one. What is read with other operators, such as
the table of an embedding that is a head too, is kept beside the codes.

Products of 4-bit codes take x in blocks of bytes (accuracy level 4): beside the error of the codes
that of x is not seen, and the product takes a third of the time. Codes of 8 bits are multiplied as
float32 in the portable program (`variants.byte_products` is about others).

What products with weights of 8 bits multiply is rounded to bytes (`RoundData`), so that errors can
be measured. Hosts with an instruction for it take the data of `MatMulNBits` in blocks of bytes
(`variants.byte_products`), others as they are. Errors that are told hold on both:

    MatMulNBits(x, w)  ->  MatMulNBits(x', w)   x' = round(x / s) * s, s = max |x| / 127 in a block

This is for models that measure alone, which no host runs in a program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import int_attribute
from sambac.numerics.integers import in_blocks, relative_error
from sambac.passes.base import Pass
from sambac.passes.rewriting import derived_name

from .quantized_layers import LayerNote, Product, bias_of, products, put_result

DOMAIN = "com.microsoft"
IN_BYTES = 4
"""The accuracy level of products whose left factor is rounded to bytes, too."""
_NARROW = 4


@dataclass(frozen=True)
class QuantizeWeights(Pass):
    """Store weights of products in so many `bits`, with a scale for `block` of them.

    The nodes in `but` stay as they are.
    """

    name: ClassVar[str] = "quantize_weights"
    operators: ClassVar[frozenset[str] | None] = frozenset({"MatMul", "Gemm"})
    bits: int = 4
    block: int = 32
    but: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Quantise the products of the main graph."""
        editor = Editor(model)
        known: dict[tuple[str | None, bool], _BlockWeights] = {}
        found = [*products(model.graph, self.but)]
        for product in found:
            editor.rewrite(product.node)
            key = product.stored.name, product.turned
            if key not in known:
                known[key] = self._stored(editor, product)
            self._put(editor, product, known[key])
        return ir.passes.PassResult(model, modified=bool(found))

    def _stored(self, editor: Editor, product: Product) -> _BlockWeights:
        weights, origin = product.weights(), product.stored
        found = in_blocks(weights, self.bits, self.block)
        codes = editor.initializer(found.codes, derived_name(origin, f"int{self.bits}"), [origin])
        scales = editor.initializer(found.scales, derived_name(origin, "scales"), [origin])
        return _BlockWeights(codes, scales, relative_error(found.matrix(), weights))

    def _put(self, editor: Editor, product: Product, stored: _BlockWeights) -> None:
        """Put the product of codes in the place of that of `product`."""
        node, out = product.node, product.node.outputs[0]
        bias, last = bias_of(product)
        made = editor.op(
            "MatMulNBits",
            *(product.data, stored.codes, stored.scales),
            *(() if bias is None else (None, None, bias)),
            domain=DOMAIN,
            like=out,
            K=product.rows,
            N=product.columns,
            bits=self.bits,
            block_size=self.block,
            accuracy_level=IN_BYTES if self.bits == _NARROW else 0,
        )
        precision, scale = f"int{self.bits}-weights", f"blocks-of-{self.block}"
        row = LayerNote(str(node.name), node.op_type, precision, scale, stored.error)
        row.note(made.producer())
        if last is not node:
            put_result(editor, last, made, None)
            editor.remove(node)
        else:
            put_result(editor, node, made, None if bias is not None else product.added)


@dataclass(frozen=True)
class _BlockWeights:
    """The codes and scales of a matrix, and their relative error."""

    codes: ir.Value
    scales: ir.Value
    error: float


_BYTE = 8
_LARGEST = np.asarray(127, np.float32)
_HALF = np.asarray(0.5, np.float32)
_LEAST = np.asarray(1e-30, np.float32)  # so that blocks of zeros stay zeros


@dataclass(frozen=True)
class RoundData(Pass):
    """Round the data of products that were given weights of 8 bits."""

    name: ClassVar[str] = "round_data"
    operators: ClassVar[frozenset[str] | None] = frozenset({"MatMulNBits"})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph; all operators are such as every opset from 8 on has."""
        editor, modified = Editor(model), False
        for node in tuple(model.graph):
            if LayerNote.noted(node) is None or int_attribute(node, "bits", 4) != _BYTE:
                continue
            if node.op_type == "MatMulNBits" and node.inputs[0] is not None:
                editor.go_before(node)
                length, block = int_attribute(node, "K"), int_attribute(node, "block_size")
                node.replace_input_with(0, _rounded(editor, node.inputs[0], length, block))
                modified = True
        return ir.passes.PassResult(model, modified=modified)


def _rounded(editor: Editor, data: ir.Value, length: int, block: int) -> ir.Value:
    """Return `data` [.., length] in steps of its blocks; its last number fills up the last."""
    assert data.shape is not None
    count = -(-length // block)
    places = np.minimum(np.arange(count * block), length - 1)
    filled = editor.op("Gather", data, places, axis=len(data.shape) - 1)
    blocks = editor.op("Reshape", filled, np.array([-1, count, block]))
    largest = editor.op("MaxPool", editor.op("Abs", blocks), kernel_shape=[block])
    step = editor.op("Add", editor.op("Div", largest, _LARGEST), _LEAST)
    shifted = editor.op("Add", editor.op("Div", blocks, step), _HALF)
    whole = editor.op("Mul", editor.op("Floor", shifted), step)
    rows = editor.op("Reshape", whole, np.array([-1, count * block]))
    kept = editor.op("Gather", rows, np.arange(length), axis=1)
    return editor.op("Reshape", kept, editor.op("Shape", data), like=data)
