"""Running statistics that no kernel writes over.

    BatchNormalization(x, s, b, mean, var; training_mode = 1)
        ->  BatchNormalization(x, s, b, -(-mean), -(-var); training_mode = 1)

onnxruntime's kernel returns the new statistics in the memory of the old ones, whoever reads those
later, and even if they are constants or belong to the caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute

from .rewriting import Rule, RulePass


def own_statistics(editor: Editor, node: ir.Node) -> str | None:
    """Give the node copies of its inputs 3 and 4."""
    if not int_attribute(node, "training_mode"):
        return "in inference nothing is written"
    for index in (3, 4):
        value = input_at(node, index)
        assert value is not None
        if _is_copy(value):
            return "it has its own statistics"
        negative = editor.op("Neg", value, like=value)
        node.replace_input_with(index, editor.op("Neg", negative, like=value))
    return None


def _is_copy(value: ir.Value) -> bool:
    maker = value.producer()
    return maker is not None and maker.op_type == "Neg" and len(value.uses()) == 1


@dataclass(frozen=True)
class OwnStatistics(RulePass):
    """Copy what the kernel of BatchNormalization in training would write over."""

    name: ClassVar[str] = "own_statistics"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"BatchNormalization": (own_statistics,)}
