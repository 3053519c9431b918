"""The additions that onnxruntime runs, or fuses, best.

    Sum(a, b)      ->  Add(a, b)           onnxruntime fuses Conv + Add + Relu, but not with Sum
    Sum(a, b, c)   ->  Add(Add(a, b), c)   0.6 of the time: Sum of three has no vector code
    Add(a, b)      ->  Sum(a, b)           if only a LayerNormalization reads it, as one operator or
                                           written out: onnxruntime would fuse the two into
                                           SkipLayerNormalization, which takes 2 to 8 times as long

for operands of one known shape, from opset 8 on; the last for float32 rows of at least 128
numbers (shorter ones gain nothing), and then it is the Sum that stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape

from .rewriting import Rule, RulePass, has_one_reader

_ADD_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_MIN_ROW = 128


def sum_to_adds(editor: Editor, node: ir.Node) -> str | None:
    """Sum(a, b, c) -> Add(Add(a, b), c)."""
    if len(node.inputs) == 2 and _is_normalised(node.outputs[0]):
        return "a LayerNormalization reads it"
    if editor.opset < 8 or node.outputs[0].dtype not in _ADD_TYPES or len(node.inputs) < 2:
        return "Add does not take its place"
    shape = static_shape(node.outputs[0])
    if shape is None or any(static_shape(value) != shape for value in node.inputs):
        return "the shapes differ or are not known"
    first, *middle, last = node.inputs
    for value in middle:
        first = editor.op("Add", first, value, like=node.outputs[0])
    editor.replace(node, "Add", first, last)
    return None


def add_to_sum(editor: Editor, node: ir.Node) -> str | None:
    """LayerNormalization(Add(a, b)) -> LayerNormalization(Sum(a, b))."""
    out = node.outputs[0]
    if editor.opset < 8 or not _is_normalised(out):
        return "the only reader is no LayerNormalization"
    shape = static_shape(out)
    if out.dtype != ir.DataType.FLOAT or shape is None or not shape or shape[-1] < _MIN_ROW:
        return "the numbers are no float32 rows of at least 128"
    if any(static_shape(value) != shape for value in node.inputs):
        return "the shapes differ or are not known"
    editor.replace(node, "Sum", *node.inputs)
    return None


def _is_normalised(value: ir.Value) -> bool:
    """Tell whether only a LayerNormalization reads the value, as one operator or written out.

    Written out, the value goes to a ReduceMean and to the Sub that takes that mean from it.
    """
    if value.is_graph_output() or any(reader.domain != "" for reader in value.consumers()):
        return False
    readers = sorted(reader.op_type for reader in value.consumers())
    if readers[:1] == ["ReduceMean"]:
        return set(readers[1:]) == {"Sub"}
    return readers == ["LayerNormalization"] and has_one_reader(value)


@dataclass(frozen=True)
class ChooseAdditions(RulePass):
    """Choose between Add and Sum for additions of tensors of one shape."""

    name: ClassVar[str] = "choose_additions"
    operators: ClassVar[frozenset[str] | None] = frozenset(
        {"LayerNormalization", "ReduceMean", "Sum"}
    )
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Sum": (sum_to_adds,),
        "Add": (add_to_sum,),
    }
