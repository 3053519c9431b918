"""Activations by cheaper operators that give the same numbers.

    PRelu(x, c)   ->  LeakyRelu(x)               0.05 of the time; c one finite number
    PRelu(x, c)   ->  Relu(x) + c * Min(x, 0)    0.1 of the time; c finite numbers, for channels
    Mish(x)       ->  x * n / (n + 2)            0.1 of the time; n = (e + 2) * e, e = exp(x)

for float32; the last also where it is written x * Tanh(Softplus(x)): tanh(log(1 + e)) is the
quotient of (1 + e)^2 - 1 and (1 + e)^2 + 1. It is rounded in another way (nearer to the exact
numbers), and after PRelu the sign of a 0 may be another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import modelled_shape
from sambac.passes.rewriting import Rule, RulePass, constant, has_one_reader, made_by

_MIN_BROADCASTS = 8
"""The first opset whose Min takes a tensor and a number."""
_SATURATED = 20.0
"""From here on n / (n + 2) is 1, before n is infinite."""
_FEWEST = 4096
"""So many elements take longer than three operators more."""


def leak(editor: Editor, node: ir.Node) -> str | None:
    """PRelu(x, c) -> LeakyRelu(x), or Relu(x) + c * Min(x, 0)."""
    x, slope = node.inputs
    array = constant(slope)
    if x is None or x.dtype != ir.DataType.FLOAT or array is None or editor.opset < _MIN_BROADCASTS:
        return "it has no constant slope, or is of another type"
    if not np.isfinite(array).all():
        return "a slope is not finite, and none of 0"
    if array.size == 1 and x.shape is not None and array.ndim <= len(x.shape):
        editor.replace(node, "LeakyRelu", x, alpha=float(array.reshape(-1)[0]))
        return None
    size = prod(modelled_shape(x) or (0,))
    if x.shape != node.outputs[0].shape or size < _FEWEST:
        return "the shape changes or is unknown, or the tensor is small"
    out = node.outputs[0]
    below = editor.op("Mul", editor.op("Min", x, 0.0, like=out), slope, like=out)
    editor.replace(node, "Add", editor.op("Relu", x, like=out), below)
    return None


def mish(editor: Editor, node: ir.Node) -> str | None:
    """Mish(x) -> x * n / (n + 2)."""
    return _spelled(editor, node, node.inputs[0])


def written_mish(editor: Editor, node: ir.Node) -> str | None:
    """Tanh(Softplus(x)) * x -> x * n / (n + 2)."""
    softplus, share = made_by(node.inputs[0], "Softplus"), node.outputs[0]
    if softplus is None or not has_one_reader(softplus.outputs[0]) or not has_one_reader(share):
        return "it reads no Softplus of its own, or has other readers"
    x, product = softplus.inputs[0], share.consumers()[0]
    if product.op_type != "Mul" or set(product.inputs) != {x, share}:
        return "it is not multiplied by what the Softplus is of"
    editor.rewrite(product)
    return _spelled(editor, product, x)


def _spelled(editor: Editor, node: ir.Node, x: ir.Value | None) -> str | None:
    """Put Mish of `x` in the place of `node`."""
    out = node.outputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT or editor.opset < _MIN_BROADCASTS:
        return "it is not of float32"
    e = editor.op("Exp", editor.op("Min", x, _SATURATED, like=out), like=out)
    n = editor.op("Mul", editor.op("Add", e, 2.0, like=out), e, like=out)
    share = editor.op("Div", n, editor.op("Add", n, 2.0, like=out), like=out)
    editor.replace(node, "Mul", x, share)
    return None


@dataclass(frozen=True)
class LowerActivations(RulePass):
    """Write activations with slow kernels as several operators with fast ones."""

    name: ClassVar[str] = "lower_activations"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Mish": (mish,),
        "PRelu": (leak,),
        "Tanh": (written_mish,),
    }
