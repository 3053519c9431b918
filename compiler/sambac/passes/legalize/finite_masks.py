"""Masks of attention whose rows are the lowest number there is.

    Attention(q, k, v, mask)  ->  Attention(q, k, v, mask + Where(mask == lowest, step, 0))

with lowest the lowest finite number of the type of the mask, and step what leads to the next one. A
query whose row holds nothing but the lowest has the mean of all values: that is what is left of its
scores. onnxruntime's kernel takes such a row for one of -inf, and gives zeros. So transformers
write the masks of padding. The step is added, so that what else the mask is a sum of has gradients.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at
from sambac.passes.rewriting import Rule, RulePass, constant

MASK = 3
"""Which operand of Attention is its mask."""
_FLOATS: Mapping[ir.DataType, type[np.floating]] = {
    ir.DataType.FLOAT: np.float32,
    ir.DataType.FLOAT16: np.float16,
    ir.DataType.DOUBLE: np.float64,
}


def give_mean(editor: Editor, node: ir.Node) -> str | None:
    """Attention(q, k, v, mask) -> Attention(q, k, v, mask + Where(mask == lowest, step, 0))."""
    mask = input_at(node, MASK)
    if mask is None:
        return "there is no mask"
    raised = raise_lowest(editor, mask)
    if raised is mask:
        return "the mask is known to hold other numbers"
    node.replace_input_with(MASK, raised)
    return None


def raise_lowest(editor: Editor, mask: ir.Value) -> ir.Value:
    """Return `mask` with the next number for the lowest, itself where it holds none."""
    element = None if mask.dtype is None else _FLOATS.get(mask.dtype)
    if element is None:
        return mask
    lowest = np.finfo(element).min
    content = constant(mask)
    if content is not None and not (content == lowest).any():
        return mask
    truth = ir.Value(type=ir.TensorType(ir.DataType.BOOL), shape=mask.shape)
    is_lowest = editor.op("Equal", mask, np.asarray(lowest, element), like=truth)
    step = np.asarray(np.nextafter(lowest, element(0)) - lowest, element)
    raised = editor.op("Where", is_lowest, step, np.zeros((), element), like=mask)
    return editor.op("Add", mask, raised, like=mask)


@dataclass(frozen=True)
class FiniteMasks(RulePass):
    """Keep finite masks of attention from being taken for infinite ones."""

    name: ClassVar[str] = "finite_masks"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Attention": (give_mean,)}
