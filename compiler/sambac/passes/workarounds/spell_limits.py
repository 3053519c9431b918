"""Limits of clips, so that onnxruntime takes them.

Limits that cross, which it refuses before opset 11 (`SpellLimits`):

    Clip(x; min = 2, max = 1)         ->  Clip(Clip(x; min = 2); max = 1)
    Clip(Relu(x); min = -2, max = -1) ->  Clip(Clip(x; min = 0); max = -1)

The upper one wins, as later opsets say. And since opset 11, of other types than float32 and
float16,

    Clip(Relu(x), min, max)           ->  Clip(x, Max(min, 0), max)      min constant, or absent

onnxruntime would do both of the latter itself: it lets the limits of the former cross, and refuses
the type of this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, input_at
from sambac.passes.rewriting import Rule, RulePass, constant, made_by

_LIMITS_ARE_INPUTS = 11
_FUSED = frozenset({ir.DataType.FLOAT, ir.DataType.FLOAT16})
_LARGEST = float(np.finfo(np.float32).max)


def spell_crossed(editor: Editor, node: ir.Node) -> str | None:
    """Let the upper limit win where it is below the lower one."""
    if editor.opset >= _LIMITS_ARE_INPUTS:
        return "onnxruntime takes limits that cross"
    relu = made_by(node.inputs[0], "Relu")
    low = float_attribute(node, "min", -_LARGEST)
    high = float_attribute(node, "max", _LARGEST)
    if relu is not None:
        low = max(low, 0.0)
    if low <= high:
        return "the limits do not cross"
    x = node.inputs[0] if relu is None else relu.inputs[0]
    raised = editor.op("Clip", x, like=node.outputs[0], min=low)
    editor.replace(node, "Clip", raised, max=high)
    return None


def spell_rectified(editor: Editor, node: ir.Node) -> str | None:
    """Clip(Relu(x), min, max) -> Clip(x, Max(min, 0), max)."""
    relu, dtype = made_by(node.inputs[0], "Relu"), node.outputs[0].dtype
    if relu is None or dtype is None or dtype in _FUSED or editor.opset < _LIMITS_ARE_INPUTS:
        return "onnxruntime takes a Relu of these numbers into a Clip, or there is none"
    given = input_at(node, 1)
    low = np.zeros((), dtype.numpy()) if given is None else constant(given)
    if low is None:
        return "the lower limit is not known"
    limit = editor.initializer(np.maximum(low, low.dtype.type(0)), f"{node.outputs[0].name}_min")
    editor.replace(node, "Clip", relu.inputs[0], limit, input_at(node, 2))
    return None


@dataclass(frozen=True)
class SpellLimits(RulePass):
    """Write limits of clips as onnxruntime takes them."""

    name: ClassVar[str] = "spell_limits"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Clip": (spell_crossed, spell_rectified)}
