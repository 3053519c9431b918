"""Group normalisation as one of instances, which has a kernel.

With C channels in G groups, and D elements in a group of one image,

    GroupNormalization(x, scale, bias; G)
        ->  BatchNormalization(Reshape(z, shape of x), scale, bias, 0, 1; epsilon = 0)
            z = InstanceNormalization(Reshape(x, [N, G, D]), 1, 0)

for float32 of known shape, since opset 21 (before, scale and bias had an element for each group);
16-bit numbers are float32 ones meanwhile.
The body that ONNX defines takes E[x^2] - E[x]^2 for the variance, which loses all digits where the
mean is large, and a dozen operators; the kernel takes the mean of (x - E[x])^2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, int_attribute, static_shape

from .infer_shapes import infer
from .rewriting import Rule, RulePass

_SCALE_BY_CHANNEL = 21
_DTYPES = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16)


def lower_group_normalization(editor: Editor, node: ir.Node) -> str | None:
    """GroupNormalization -> InstanceNormalization of groups, then scale and bias."""
    x, scale, bias = node.inputs[:3]
    shape = static_shape(x)
    if x is None or scale is None or bias is None or shape is None or x.dtype not in _DTYPES:
        return "the input is no tensor of known shape of floats of at most 32 bits"
    if editor.opset < _SCALE_BY_CHANNEL:
        return "scale and bias have an element for each group"
    groups = int_attribute(node, "num_groups")
    batch, channels, *sizes = shape
    if min(shape) == 0 or channels % groups:
        return "groups are empty or unequal"
    rows = (batch, groups, channels // groups * prod(sizes))
    dtype = x.dtype
    x, scale, bias = (_as_float32(editor, value) for value in (x, scale, bias))
    stem = str(node.outputs[0].name)

    def numbers(values: object, name: str) -> ir.Value:
        return editor.initializer(np.asarray(values), f"{stem}_{name}")

    flat = ir.val("", x.dtype, rows)
    grouped = editor.op("Reshape", x, numbers(rows, "groups"), like=flat)
    ones, zeros = np.ones(groups, np.float32), np.zeros(groups, np.float32)
    epsilon = float_attribute(node, "epsilon", 1e-5)
    normal = editor.op(
        "InstanceNormalization",
        grouped,
        numbers(ones, "one"),
        numbers(zeros, "zero"),
        like=flat,
        epsilon=epsilon,
    )
    whole = editor.op("Reshape", normal, numbers(shape, "shape"), like=x)
    mean, variance = np.zeros(channels, np.float32), np.ones(channels, np.float32)
    statistics = [numbers(mean, "mean"), numbers(variance, "variance")]
    parts = [whole, scale, bias, *statistics]
    if dtype == ir.DataType.FLOAT:
        editor.replace(node, "BatchNormalization", *parts, epsilon=0.0)
    else:
        wide = editor.op("BatchNormalization", *parts, like=x, epsilon=0.0)
        editor.replace(node, "Cast", wide, to=int(dtype))
    return None


def _as_float32(editor: Editor, value: ir.Value) -> ir.Value:
    if value.dtype == ir.DataType.FLOAT:
        return value
    wide = ir.val("", ir.DataType.FLOAT, value.shape)
    return editor.op("Cast", value, like=wide, to=int(ir.DataType.FLOAT))


@dataclass(frozen=True)
class LowerGroupNormalization(RulePass):
    """Rewrite group normalisation to operators that have kernels.

    Types and shapes are inferred anew where that was done: behind the operator itself, the ONNX
    library knows none.
    """

    name: ClassVar[str] = "lower_group_normalization"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GroupNormalization": (lower_group_normalization,)
    }

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        result = super().call(model)
        if result.modified:
            infer(model)
        return result
