"""Constant operands, spelled as all who read them understand them.

Slices that say where they end (`SpellSlices`):

    Slice(x, starts, ends = INT_MAX, axes, steps < 0)  ->  Slice(x, starts, ends = INT64_MIN, ..)

onnxruntime takes the largest int32 and the largest int64 for the far end, whichever way it goes:
back from there to the first element. Shape inference, and the specification, find nothing there.
What is computed is what onnxruntime computes.

Bounds of a Range as scalars (`ScalarRanges`):

    Range([a], b, [c])  ->  Range(a, b, c)    for constants of one element

onnxruntime takes vectors of one element when it runs a Range, but not where they are constants:
then its shape inference refuses the graph, which folding can bring about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at

from .rewriting import Rule, RulePass, constant, integers

_FAR_ENDS = (np.iinfo(np.int32).max, np.iinfo(np.int64).max)


def spell_slice(editor: Editor, node: ir.Node) -> str | None:
    """Let a slice that goes back to INT_MAX go back beyond the first element."""
    ends, steps = constant(input_at(node, 2)), integers(input_at(node, 4))
    if ends is None or steps is None or ends.size != len(steps):
        return "where it ends is not known, or it goes forward"
    wide = ends.astype(np.int64)
    far = np.isin(wide, _FAR_ENDS) & (np.asarray(steps) < 0)
    if not far.any():
        return "it ends where it says"
    wide[far] = np.iinfo(np.int64).min
    if ends.dtype != np.int64:
        wide = np.maximum(wide, np.iinfo(ends.dtype).min)
    content = editor.initializer(wide.astype(ends.dtype), f"{node.outputs[0].name}_ends")
    node.replace_input_with(2, content)
    return None


@dataclass(frozen=True)
class SpellSlices(RulePass):
    """Write constant ends of slices that go back as all who read them understand them."""

    name: ClassVar[str] = "spell_slices"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Slice": (spell_slice,)}


def range_of_scalars(editor: Editor, node: ir.Node) -> str | None:
    """Range([a], b, [c]) -> Range(a, b, c)."""
    changed = False
    for index, value in enumerate(node.inputs):
        array = constant(value)
        if value is None or array is None or array.size != 1 or array.ndim == 0:
            continue
        bound = editor.initializer(array.reshape(()), f"{value.name}_scalar", origin=(value,))
        node.replace_input_with(index, bound)
        changed = True
    return None if changed else "no bound is a constant vector"


@dataclass(frozen=True)
class ScalarRanges(RulePass):
    """Make scalars of the constant bounds of every Range."""

    name: ClassVar[str] = "scalar_ranges"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Range": (range_of_scalars,)}
