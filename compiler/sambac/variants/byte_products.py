"""Products of bytes, for hosts that multiply unsigned and signed ones exactly.

Weights lie in a file as unsigned bytes, with 128 for 0: products of two unsigned bytes are exact on
every host. Those with an instruction for unsigned and signed ones have the others only by a detour;
there

    MatMulIntegerToFloat(x, w, .., 128)  ->  MatMulIntegerToFloat(x, int8(w - 128), ..)
    QLinearConv(x, .., w, .., 128, ..)   ->  QLinearConv(x, .., int8(w - 128), .., 0, ..)
    MatMulNBits(x, w), in 8 bits         ->  MatMulNBits(x, w), with x in blocks of bytes

The last are those of `quantize_weights` alone: what came so is computed as it came. So are products
of signed weights that `unsigned_weights` shifted.

onnxruntime computes int8(w - 128) when the program is loaded, as it depends on weights alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute
from sambac.numerics.integers import MIDDLE
from sambac.passes.base import Pass
from sambac.passes.legalize.unsigned_weights import UnsignedWeights, shifted_places
from sambac.passes.quantize.quantized_layers import LayerNote

FEATURE = "u8s8"
"""What a program of these products requires of the host."""

_DOMAIN = "com.microsoft"
_IN_BYTES = 4
_BYTE = 8
_Signed = Callable[[ir.Value], ir.Value]


@dataclass(frozen=True)
class ByteProducts(Pass):
    """Let products of bytes read signed weights."""

    name: ClassVar[str] = "byte_products"
    operators: ClassVar[frozenset[str]] = frozenset(
        {"MatMulNBits", "MatMulIntegerToFloat", "QLinearConv", *UnsignedWeights.operators}
    )

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model`, a section's, whose weights are inputs."""
        editor = Editor(model)
        known: dict[ir.Value, ir.Value] = {}

        def signed(weights: ir.Value) -> ir.Value:
            if weights not in known:
                known[weights] = _signed(editor, weights)
            return known[weights]

        modified = False
        for node in tuple(model.graph):
            rule = _back if shifted_places(node) else _RULES.get(node.op_type)
            if rule is not None:
                editor.go_before(node)
                modified |= rule(node, signed)
        return ir.passes.PassResult(model, modified=modified)


def _signed(editor: Editor, weights: ir.Value) -> ir.Value:
    """Return int8(weights - 128), put before all that reads them."""
    whole = ir.val("", ir.DataType.INT32, weights.shape)
    wide = editor.op("Cast", weights, like=whole, to=int(ir.DataType.INT32))
    shifted = editor.op("Sub", wide, np.asarray(MIDDLE, np.int32), like=whole)
    narrow = ir.val("", ir.DataType.INT8, weights.shape)
    return editor.op("Cast", shifted, like=narrow, to=int(ir.DataType.INT8))


def _in_blocks(node: ir.Node, signed: _Signed) -> bool:
    """MatMulNBits(x, w) -> the same, with x in bytes."""
    if int_attribute(node, "bits", 4) != _BYTE or LayerNote.noted(node) is None:
        return False  # those of a model that came quantised keep their digits
    node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", _IN_BYTES)
    return True


def _back(node: ir.Node, signed: _Signed) -> bool:
    """Let a product of a model that came quantised read its weights as they came."""
    for place in shifted_places(node):
        value = node.inputs[place]
        assert value is not None
        node.replace_input_with(place, signed(value))
    return True


def _weights_at(weights: int, middle: int) -> Callable[[ir.Node, _Signed], bool]:
    """Return the rule of products that read weights and their 0 at these places."""

    def rule(node: ir.Node, signed: _Signed) -> bool:
        value, zero = input_at(node, weights), input_at(node, middle)
        if value is None or zero is None or value.dtype != ir.DataType.UINT8:
            return False
        content = zero.const_value
        if content is None or not np.all(content.numpy() == MIDDLE):
            return False
        node.replace_input_with(weights, signed(value))
        node.replace_input_with(middle, signed(zero))
        return True

    return rule


_RULES: Mapping[str, Callable[[ir.Node, _Signed], bool]] = {
    "MatMulNBits": _in_blocks,
    "MatMulIntegerToFloat": _weights_at(1, 5),
    "QLinearConv": _weights_at(3, 5),
}
