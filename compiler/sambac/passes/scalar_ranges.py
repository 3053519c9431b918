"""Bounds of a Range as scalars.

    Range([a], b, [c])  ->  Range(a, b, c)    for constants of one element

onnxruntime takes vectors of one element when it runs a Range, but not where they are constants:
then its shape inference refuses the graph, which folding can bring about.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor

from .rewriting import Rule, RulePass, constant


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
