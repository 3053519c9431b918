"""Axes of reductions that count from the start, where there may be no elements.

    ReduceMean(x, axes = -1)  ->  ReduceMean(x, axes = 1)      x [N, 5]

also ArgMax, ArgMin and all other reductions. Where a size is 0, as an open one may turn out to be,
onnxruntime takes no negative axis for one that goes: the result of it has the shape of x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at

from .rewriting import Rule, RulePass, integers

_REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean"),
    *("ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def spell_axes(editor: Editor, node: ir.Node) -> str | None:
    """Let the axes of a reduction be none from the end, if its operand may have no elements."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return "the number of axes is not known"
    if all(isinstance(size, int) and size > 0 for size in x.shape):
        return "there are elements"
    rank = len(x.shape)
    axis, axes = node.attributes.get("axis"), node.attributes.get("axes")
    if axis is not None and axis.as_int() >= 0:
        return "it counts from the start"
    if axis is not None:
        node.attributes["axis"] = ir.AttrInt64("axis", axis.as_int() % rank)
        return None
    given = integers(input_at(node, 1)) if axes is None else axes.as_ints()
    if given is None or min(given, default=0) >= 0:
        return "they count from the start, or are not known"
    counted = [axis % rank for axis in given]
    if axes is not None:
        node.attributes["axes"] = ir.AttrInt64s("axes", counted)
        return None
    content = editor.initializer(np.asarray(counted, np.int64), f"{node.outputs[0].name}_axes")
    node.replace_input_with(1, content)
    return None


@dataclass(frozen=True)
class SpellAxes(RulePass):
    """Write axes as the kernels for no elements understand them."""

    name: ClassVar[str] = "spell_axes"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(
        (*_REDUCTIONS, "ArgMax", "ArgMin"), (spell_axes,)
    )
