"""Dropouts of rate 1, which ONNX has not, and PyTorch has.

    y, kept = Dropout(x, 1, True)  ->  y = Mul(x, 0), kept = Expand(False)

onnxruntime refuses them when they run. What is infinite, or no number, becomes NaN as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, redirect

from .rewriting import Rule, RulePass, constant


def full(editor: Editor, node: ir.Node) -> str | None:
    """Dropout(x, 1, True) -> Mul(x, 0); what it kept is nothing."""
    x = node.inputs[0]
    ratio, training = constant(input_at(node, 1)), constant(input_at(node, 2))
    if x is None or x.dtype is None or ratio is None or not (ratio == 1).all():
        return "it may keep elements"
    if training is None or not training.any():
        return "it may drop nothing"
    dropped = editor.op("Mul", x, np.zeros((), x.dtype.numpy()), like=node.outputs[0])
    redirect(node.outputs[0], dropped)
    for kept in node.outputs[1:]:
        redirect(kept, editor.op("Expand", np.array(False), editor.op("Shape", x), like=kept))
    editor.remove(node)
    return None


@dataclass(frozen=True)
class FullDropouts(RulePass):
    """Multiply by 0 what a dropout of rate 1 drops."""

    name: ClassVar[str] = "full_dropouts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Dropout": (full,)}
