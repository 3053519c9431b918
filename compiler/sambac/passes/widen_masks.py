"""Masks of attention, as wide as the kernel wants them.

    Attention(q, k, v, mask)  ->  Attention(q, k, v, Expand(mask))

where a mask has one row for all queries, or one column for all keys: the operator broadcasts it,
onnxruntime's kernel refuses it at run time. From opset 24 on, a column is padded, not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.node_facts import input_at, static_shape

from .rewriting import Editor, Rule, RulePass

_PADS = 24
"""The opset from which on masks with too few columns are padded."""


def widen(editor: Editor, node: ir.Node) -> str | None:
    """Attention(q, k, v, mask) -> Attention(q, k, v, Expand(mask))."""
    mask, past = input_at(node, 3), input_at(node, 4)
    shapes = [static_shape(value) for value in (mask, node.inputs[0], node.inputs[1])]
    cached = (0, 0, 0, 0) if past is None else static_shape(past)
    shape, query, key = shapes
    if mask is None or shape is None or query is None or key is None or cached is None:
        return "there is no mask, or a shape is not known"
    if len(shape) < 2:
        return "the mask has no rows"
    rows, columns = shape[-2:]
    rows = query[-2] if rows == 1 else rows
    columns = key[-2] + cached[2] if columns == 1 and editor.opset < _PADS else columns
    full = (*shape[:-2], rows, columns)
    if full == shape:
        return "the mask is wide enough"
    stem = f"{mask.name}_wide"
    target = editor.constant(np.asarray(full, np.int64), f"{stem}_shape", at=node)
    like = ir.Value(type=mask.type, shape=ir.Shape(full))
    node.replace_input_with(3, editor.insert(node, "Expand", [mask, target], like, name=stem))
    return None


@dataclass(frozen=True)
class WidenMasks(RulePass):
    """Expand the masks of attention to a row for each query and a column for each key."""

    name: ClassVar[str] = "widen_masks"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Attention": (widen,)}
