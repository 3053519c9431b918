"""What operators leave to be found, spelled out where kernels of onnxruntime do not find it.

Axes of a Resize that count from the start (`SpellResizing`):

    Resize(x, .., axes = [-2, -1])  ->  Resize(x, .., axes = [2, 3])    x of 4 axes

With `keep_aspect_ratio_policy` the kernel makes other sizes of those that count from the end.

The bias of a fused attention (`GiveBias`):

    com.microsoft.Attention(x, w)  ->  com.microsoft.Attention(x, w, 0)

It may be absent, but the kernel reads it all the same, and ends the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at

from .rewriting import Rule, RulePass


def spell_resizing(editor: Editor, node: ir.Node) -> str | None:
    """Let no axis of a Resize count from the end."""
    axes, x = node.attributes.get("axes"), node.inputs[0]
    if axes is None or min(axes.as_ints(), default=0) >= 0 or x is None or x.shape is None:
        return "they count from the start, or their number is not known"
    counted = [axis % len(x.shape) for axis in axes.as_ints()]
    node.attributes["axes"] = ir.AttrInt64s("axes", counted)
    return None


@dataclass(frozen=True)
class SpellResizing(RulePass):
    """Write axes of what is resized as the kernel understands them."""

    name: ClassVar[str] = "spell_resizing"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Resize": (spell_resizing,)}


def give_bias(editor: Editor, node: ir.Node) -> str | None:
    """Attention(x, w) -> Attention(x, w, 0)."""
    weights = input_at(node, 1)
    if input_at(node, 2) is not None or weights is None or weights.dtype is None:
        return "it has one"
    size = editor.op("Gather", editor.op("Shape", weights), np.ones(1, np.int64))
    zero = ir.tensor(np.zeros(1, weights.dtype.numpy()))
    bias = editor.op("ConstantOfShape", size, value=zero)
    node.resize_inputs(max(len(node.inputs), 3))
    node.replace_input_with(2, bias)
    return None


@dataclass(frozen=True)
class GiveBias(RulePass):
    """Give zeros to fused attentions that have no bias."""

    name: ClassVar[str] = "give_bias"
    domain: ClassVar[str] = "com.microsoft"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Attention": (give_bias,)}
