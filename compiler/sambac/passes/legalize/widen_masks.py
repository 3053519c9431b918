"""Masks of attention, as wide as the kernel wants them.

    Attention(q, k, v, mask)  ->  Attention(q, k, v, Expand(mask))

where a mask has one row for all queries, or may have, or one column for all keys: the operator
broadcasts it, onnxruntime's kernel refuses it at run time. From opset 24 on, a column is padded,
not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, same_size
from sambac.passes.rewriting import Rule, RulePass

Dims: TypeAlias = "tuple[int | ir.SymbolicDim, ...]"

_PADS = 24
"""The opset from which on masks with too few columns are padded."""


def widen(editor: Editor, node: ir.Node) -> str | None:
    """Attention(q, k, v, mask) -> Attention(q, k, v, Expand(mask)).

    Sizes that are open stay so: a batch is none of the matter, and the numbers of queries and keys
    are asked when the model runs.
    """
    mask, past = input_at(node, 3), input_at(node, 4)
    shapes = [_dims(value) for value in (mask, node.inputs[0], node.inputs[1])]
    cached = (0, 0, 0, 0) if past is None else _dims(past)
    shape, query, key = shapes
    if mask is None or shape is None or query is None or key is None or cached is None:
        return "there is no mask, or a shape is not known"
    if len(shape) < 2:
        return "the mask has no rows"
    rows, columns = shape[-2:]
    rows = query[-2] if _may_be_one(rows, query[-2]) else rows
    if columns == 1 and editor.opset < _PADS:
        if isinstance(key[-2], int) and isinstance(cached[2], int):
            columns = key[-2] + cached[2]
        elif past is not None or not same_size(key[-2], key[-2]):
            return "the number of keys is open"
        else:
            columns = key[-2]
    full = (*shape[:-2], rows, columns)
    if full == shape:
        return "the mask is wide enough"
    stem = f"{mask.name}_wide"
    target = _target(editor, node, full, stem)
    like = ir.Value(type=mask.type, shape=ir.Shape(full))
    node.replace_input_with(3, editor.op("Expand", mask, target, like=like, name=stem))
    return None


def _may_be_one(rows: int | ir.SymbolicDim, queries: int | ir.SymbolicDim) -> bool:
    """Tell whether a mask has one row, or may have, as their number is open, and not the queries'.

    Behind its Expand it has theirs, which then have to be known by a name.
    """
    open_rows = not isinstance(rows, int) and not same_size(rows, queries)
    return rows == 1 or (open_rows and same_size(queries, queries))


def _dims(value: ir.Value | None) -> Dims | None:
    return None if value is None or value.shape is None else tuple(value.shape.dims)


def _target(editor: Editor, node: ir.Node, full: Dims, stem: str) -> ir.Value:
    """Return the shape to expand a mask to, in which 1 leaves an axis as it is."""
    sizes = [size if isinstance(size, int) else 1 for size in full]
    mask = _dims(node.inputs[3]) or full
    places = ((0, -2, "rows"), (1, -1, "columns"))  # queries for rows, keys for columns
    asked = [
        (source, at, name)
        for source, at, name in places
        if not isinstance(full[at], int) and not same_size(full[at], mask[at])
    ]
    if not asked:
        return editor.initializer(np.asarray(sizes, np.int64), f"{stem}_shape")
    vector = ir.Value(type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape([1]))
    parts = {
        at: editor.op(
            "Shape", node.inputs[source], like=vector, name=f"{stem}_{name}", start=-2, end=-1
        )
        for source, at, name in asked
    }
    for _, at, name in places:
        if at not in parts:
            size = np.asarray([sizes[at]], np.int64)
            parts[at] = editor.initializer(size, f"{stem}_{name}")
    both = ir.Value(type=vector.type, shape=ir.Shape([2]))
    return editor.op("Concat", parts[-2], parts[-1], like=both, name=f"{stem}_shape", axis=0)


@dataclass(frozen=True)
class WidenMasks(RulePass):
    """Expand the masks of attention to a row for each query and a column for each key."""

    name: ClassVar[str] = "widen_masks"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Attention": (widen,)}
