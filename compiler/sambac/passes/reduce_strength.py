"""Arithmetic with a constant, by the cheaper operator that gives the same bits.

    x ** 2   ->  x * x          0.7 of the time
    x / c    ->  x * (1 / c)    0.7 of the time; c a power of two whose inverse is a normal number

for floats. A square that goes into a mean stays a Pow, and a division of a matrix product a Div:
onnxruntime recognises normalisations and attention by these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape

from .rewriting import Rule, RulePass, constant, made_by, scalar

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


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


@dataclass(frozen=True)
class ReduceStrength(RulePass):
    """Rewrite powers and divisions to products where that is exact."""

    name: ClassVar[str] = "reduce_strength"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Pow": (square,), "Div": (divide,)}
