"""Pointwise convolutions of images that are made of tokens, as matrix products of their pixels.

    Conv(x, W, b)  ->  Transpose(Transpose(x) @ W' + b)       x made by a Reshape or a Transpose

with channels last between the transposes, if W is constant and 1x1, of stride 1 and one group. The
transposes and those of the tokens move nothing together (`merge_chains`).

This is for layers that are quantised: a product finds the range of its data in each run, and gives
floating-point numbers, where a convolution of bytes rounds its result, too. Heads of segmentation
networks enlarge these results, which is done in floating point.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, static_shape
from sambac.passes.rewriting import Rule, RulePass, constant, derived_name, made_by

from .convolve_first import pointwise_results


def multiply_pixels(editor: Editor, node: ir.Node) -> str | None:
    """Conv(x, W, b) -> Transpose(Transpose(x) @ W' + b)."""
    image, weight, bias = node.inputs[0], node.inputs[1], input_at(node, 2)
    kernel, shape, out = constant(weight), static_shape(image), static_shape(node.outputs[0])
    if pointwise_results(node) is None or weight is None or kernel is None:
        return "it is not pointwise, or its weight is no constant"
    if shape is None or out is None or made_by(image, "Reshape", "Transpose") is None:
        return "its image is not made of tokens, or of no known size"
    last = (0, *range(2, len(shape)), 1)
    matrix = kernel.reshape(kernel.shape[:2]).T
    columns = editor.initializer(matrix, derived_name(weight, "columns"), origin=(weight,))

    def of_pixels(channels: int) -> ir.Value:
        return ir.val("", ir.DataType.FLOAT, [out[0], *out[2:], channels])

    pixels = editor.op("Transpose", image, like=of_pixels(shape[1]), perm=last)
    made = editor.op("MatMul", pixels, columns, like=of_pixels(out[1]))
    if bias is not None:
        made = editor.op("Add", made, bias, like=made)
    first = (0, len(out) - 1, *range(1, len(out) - 1))
    editor.replace(node, "Transpose", made, perm=first)
    return None


@dataclass(frozen=True)
class MultiplyPixels(RulePass):
    """Write pointwise convolutions of tokens as products."""

    name: ClassVar[str] = "multiply_pixels"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Conv": (multiply_pixels,)}
