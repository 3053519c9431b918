"""Pads in front of pools stay operators of their own.

    MaxPool(Pad(x, pads))  ->  MaxPool(Pad(x, pads, , axes))      axes: all of them; since opset 18
                           ->  MaxPool(Concat(Pad(x, pads)))      before

also AveragePool. onnxruntime takes a Pad by zeros into the pool that reads it, as margins of that.
But the margins of a MaxPool are below every number, so that zeros no longer win over negative ones;
none may be as wide as a window; and with `ceil_mode` no window begins in them, so that there are
fewer. It lets be a Pad that names its axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, text_attribute
from sambac.passes.rewriting import Rule, RulePass, made_by, scalar

_NAMES_AXES = 18


def keep_pad(editor: Editor, node: ir.Node) -> str | None:
    """Let onnxruntime pad by zeros what a pool reads before it pools."""
    x = node.inputs[0]
    pad = made_by(x, "Pad")
    if x is None or pad is None or text_attribute(pad, "mode", "constant") != "constant":
        return "nothing pads what it reads"
    value = input_at(pad, 2)
    if input_at(pad, 3) is not None or (value is not None and scalar(value) not in (0, None)):
        return "the Pad names its axes, or does not pad by zeros"
    rank = None if x.shape is None else len(x.shape)
    if editor.opset < _NAMES_AXES or rank is None:
        node.replace_input_with(0, editor.op("Concat", x, like=x, axis=0))
        return None
    editor.go_before(pad)
    axes = editor.initializer(np.arange(rank, dtype=np.int64), f"{x.name}_axes")
    editor.replace(pad, "Pad", pad.inputs[0], pad.inputs[1], value, axes, mode="constant")
    return None


@dataclass(frozen=True)
class KeepPads(RulePass):
    """Keep onnxruntime from taking pads into the pools that read them."""

    name: ClassVar[str] = "keep_pads"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Pad"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "AveragePool": (keep_pad,),
        "MaxPool": (keep_pad,),
    }
