"""Dropouts that drop, in a program for inference, and that onnxruntime does not run as they are.

    y, kept = Dropout(x, 1, True)  ->  y = Mul(x, 0), kept = Expand(False)
    y = Dropout(x, r, True)        ->  d, kept = Dropout(x, r, True); y = Where(kept, d, 0)

Rates of 1, which ONNX has not and PyTorch has, it refuses when they run: what is infinite, or no
number, becomes NaN as in PyTorch. Others it takes out, unless somebody reads the mask, or the
result is an output: models that draw at inference then gave the same numbers in each run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, redirect
from sambac.passes.rewriting import Rule, RulePass, constant


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


def lasting(editor: Editor, node: ir.Node) -> str | None:
    """Dropout(x, r, True) -> Where(kept, d, 0) of its two results: the same numbers."""
    x, y, training = node.inputs[0], node.outputs[0], input_at(node, 2)
    known, seed = constant(training), node.attributes.get("seed")
    if training is None or (known is not None and not known.any()):
        return "it drops nothing"
    if x is None or x.dtype is None or y.is_graph_output():
        return "onnxruntime leaves an output as it is"
    if any(kept.is_graph_output() or kept.uses() for kept in node.outputs[1:]):
        return "onnxruntime leaves it where its mask is read"
    drawn: dict[str, Any] = {} if seed is None else {"seed": seed.as_int()}
    dropped, kept = editor.ops("Dropout", *node.inputs, outputs=2, **drawn)
    zero = np.zeros((), x.dtype.numpy())
    redirect(y, editor.op("Where", kept, dropped, zero, like=y))
    editor.remove(node)
    return None


@dataclass(frozen=True)
class FullDropouts(RulePass):
    """Multiply by 0 what a dropout of rate 1 drops; read the masks of others, so that they stay."""

    name: ClassVar[str] = "full_dropouts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Dropout": (full, lasting)}
