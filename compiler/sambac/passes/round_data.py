"""What products with weights of 8 bits multiply, rounded to bytes, so that errors can be measured.

Hosts with an instruction for it take the data of `MatMulNBits` in blocks of bytes
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

from .base import Pass
from .quantized_layers import LayerNote

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
