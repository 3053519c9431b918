"""Arithmetic with a constant, by the cheaper operators that give the same numbers.

    x ** 2        ->  x * x                        0.7 of the time
    x / c         ->  x * (1 / c)                  0.7 of the time; c a power of two whose inverse
                                                   is a normal number
    PRelu(x, c)   ->  LeakyRelu(x)                 0.05 of the time; c one finite number
    PRelu(x, c)   ->  Relu(x) + c * Min(x, 0)      0.1 of the time; c finite numbers for channels
    Mish(x)       ->  x * n / (n + 2)              0.1 of the time; n = (e + 2) * e, e = exp(x)

the last also where it is written x * Tanh(Softplus(x)): tanh(log(1 + e)) is the quotient of
(1 + e)^2 - 1 and (1 + e)^2 + 1. All for floats. A square that goes into a mean stays a Pow, and a
division of a matrix product a Div: onnxruntime recognises normalisations and attention by these.
Mish is rounded in another way (nearer to the exact numbers), and the sign of a 0 may be another
after PRelu.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import modelled_shape, static_shape

from .rewriting import Rule, RulePass, constant, has_one_reader, made_by, scalar

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_MIN_BROADCASTS = 8
"""The first opset whose Min takes a tensor and a number."""
_SATURATED = 20.0
"""From here on n / (n + 2) is 1, before n is infinite."""
_FEWEST = 4096
"""So many elements take longer than three operators more."""


def square(editor: Editor, node: ir.Node) -> str | None:
    """Pow(x, 2) -> x * x."""
    x, exponent = node.inputs
    if x is None or x.dtype not in _FLOATS or scalar(exponent) != 2:
        return "it is no square of floats"
    if static_shape(x) is None or static_shape(x) != static_shape(node.outputs[0]):
        return "the shape changes or is unknown"
    if any(reader.op_type == "ReduceMean" for reader in node.outputs[0].consumers()):
        return "it is part of a normalisation"
    editor.replace(node, "Mul", x, x)
    return None


def divide(editor: Editor, node: ir.Node) -> str | None:
    """Div(x, c) -> x * (1 / c)."""
    x, divisor = node.inputs
    array = constant(divisor)
    if x is None or divisor is None or x.dtype not in _FLOATS or array is None:
        return "it is no division of floats by a constant"
    if made_by(x, "MatMul") is not None:
        return "it may be part of an attention"
    with np.errstate(all="ignore"):
        inverse = 1 / array
    usable = np.isfinite(inverse) & (np.abs(inverse) >= np.finfo(array.dtype).tiny)
    if not np.all(usable & (np.abs(np.frexp(array)[0]) == 0.5)):
        return "the inverse would be rounded"
    factor = editor.initializer(inverse, f"{divisor.name}_inverse", origin=[divisor])
    editor.replace(node, "Mul", x, factor)
    return None


def leak(editor: Editor, node: ir.Node) -> str | None:
    """PRelu(x, c) -> LeakyRelu(x), or Relu(x) + c * Min(x, 0)."""
    x, slope = node.inputs
    array = constant(slope)
    if x is None or x.dtype != ir.DataType.FLOAT or array is None or editor.opset < _MIN_BROADCASTS:
        return "it has no constant slope, or is of another type"
    if not np.isfinite(array).all():
        return "a slope is not finite, and none of 0"
    if array.size == 1:
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
    x = node.inputs[0] if node.op_type == "Mish" else _mish_of(node)
    out = node.outputs[0]
    if x is None or x.dtype != ir.DataType.FLOAT or editor.opset < _MIN_BROADCASTS:
        return "it is no Mish of float32"
    e = editor.op("Exp", editor.op("Min", x, _SATURATED, like=out), like=out)
    n = editor.op("Mul", editor.op("Add", e, 2.0, like=out), e, like=out)
    share = editor.op("Div", n, editor.op("Add", n, 2.0, like=out), like=out)
    editor.replace(node, "Mul", x, share)
    return None


def _mish_of(node: ir.Node) -> ir.Value | None:
    """Return x if `node` is x * Tanh(Softplus(x)), in which nothing else reads what is between."""
    for x, share in (tuple(node.inputs), tuple(reversed(node.inputs))):
        tanh = made_by(share, "Tanh")
        softplus = made_by(tanh.inputs[0], "Softplus") if tanh is not None else None
        if softplus is None or tanh is None or softplus.inputs[0] is not x:
            continue
        if has_one_reader(tanh.outputs[0]) and has_one_reader(softplus.outputs[0]):
            return x
    return None


@dataclass(frozen=True)
class ReduceStrength(RulePass):
    """Rewrite powers, divisions and activations to what is less work."""

    name: ClassVar[str] = "reduce_strength"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Pow": (square,),
        "Div": (divide,),
        "PRelu": (leak,),
        "Mish": (mish,),
        "Mul": (mish,),
    }
