"""Scales and shifts per channel, folded into the weights of the convolution before them.

With Affine(x) = a * x + b as in `affine.py`,

    Affine(Conv(x, W, B))            ->  Conv(x, a * W, a * B + b)
    Affine(ConvTranspose(x, W, B))   ->  ConvTranspose(x, a * W, a * B + b)

if W, B, a and b are constants, nothing else reads W or the convolution's result, and the new
numbers, computed in float64 and rounded once, are finite. A fill stays a fill: a convolution
whose weight is one is left alone where a would make it real.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array, is_uniform
from sambac.graph.editor import FILL_BYTES, Editor
from sambac.graph.nodes import input_at, int_attribute

from .affine import AFFINE_OPS, affine_of, double, is_finite, rounded
from .rewriting import (
    Rule,
    RulePass,
    combine,
    constant,
    derived_name,
    has_one_reader,
    made_by,
    present,
)

_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def fold_into_conv(editor: Editor, node: ir.Node) -> str | None:
    """Affine(Conv(x, W, B)) -> Conv(x, a * W, a * B + b)."""
    affine = affine_of(node)
    if isinstance(affine, str):
        return affine
    conv = made_by(affine.x, "Conv", "ConvTranspose")
    if conv is None or not has_one_reader(affine.x):
        return "the input is no convolution of which this is the only reader"
    weight, bias = conv.inputs[1], input_at(conv, 2)
    kernel = constant(weight)
    offset = constant(bias) if bias is not None else np.zeros((1,))
    if kernel is None or weight is None or offset is None or weight.dtype not in _FLOATS:
        return "the weight or the bias is no constant"
    if len(weight.uses()) != 1 or weight.is_graph_output():
        return "the weight has another reader"
    groups = int_attribute(conv, "group", 1)
    count = kernel.shape[0] if conv.op_type == "Conv" else kernel.shape[1] * groups
    scale = np.broadcast_to(affine.scale, (count,))
    new_kernel = _scaled(conv.op_type, kernel, scale, groups)
    new_bias = combine(lambda a, c, b: a * c + b, scale, double(offset), affine.shift)
    if is_uniform(kernel) and not is_uniform(new_kernel) and kernel.nbytes > FILL_BYTES:
        return "the weight is a fill and would become real"
    if not (is_finite(new_kernel) and is_finite(new_bias)):
        return "the folded numbers would not be finite"
    origin = (weight, *present([bias]), *affine.sources)
    editor.rewrite(conv)  # its constants stand where those that it had stood
    inputs = [
        conv.inputs[0],
        editor.initializer(new_kernel, derived_name(weight, "folded"), origin=origin),
    ]
    if bias is not None or np.any(new_bias):
        name = derived_name(weight, "shift") if bias is None else derived_name(bias, "folded")
        full = np.broadcast_to(rounded(new_bias, kernel), (count,))
        inputs.append(editor.initializer(full, name, origin=origin))
    new = editor.replace(node, conv.op_type, *inputs)
    new.attributes.update(conv.attributes)
    new.name = conv.name
    editor.remove(conv)
    return None


def _scaled(op_type: str, kernel: Array, scale: Array, groups: int) -> Array:
    """Scale the kernel by output channel, in its own dtype, rounding once."""

    def product(weight: Array, factor: Array) -> Array:
        return (double(weight) * factor).astype(kernel.dtype)

    window = (1,) * (kernel.ndim - 2)
    if op_type == "Conv":
        return combine(product, kernel, scale.reshape(-1, 1, *window))
    grouped = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:])
    factor = scale.reshape(groups, 1, -1, *window)
    return combine(product, grouped, factor).reshape(kernel.shape)


@dataclass(frozen=True)
class FoldIntoConv(RulePass):
    """Fold scales and shifts per channel into convolutions."""

    name: ClassVar[str] = "fold_into_conv"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Conv", "ConvTranspose"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(AFFINE_OPS, (fold_into_conv,))
