"""Scatters that would give wrong results at random, in forms that do not.

onnxruntime's ScatterND with a reduction runs on several threads from some size on, and they race
where indices repeat. With V rows of W elements behind the indexed axes, and N indices,

    ScatterND(x, i, u, reduction=add)  ->  x + (rows of u summed by i)             floats
    ScatterND(x, i, u, reduction=R)    ->  ScatterElements(x, i, u, reduction=R)   on V x W

Below that size, and where indices are constant and none comes twice, nothing races.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import static_shape
from sambac.ops.gradients.gather import flat_places
from sambac.ops.gradients.row_sums import sum_rows
from sambac.ops.gradients.rules import reshape
from sambac.passes.base import Pass
from sambac.passes.rewriting import constant, present

_SMALL = 2**15
"""Elements of updates up to which onnxruntime stays on one thread, with a wide margin."""


@dataclass(frozen=True)
class MakeScattersDeterministic(Pass):
    """Rewrite scatters that race."""

    name: ClassVar[str] = "make_scatters_deterministic"
    operators: ClassVar[frozenset[str] | None] = frozenset({"ScatterND"})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the main graph of `model` in place."""
        racing = [node for node in model.graph if _races(node)]
        editor = Editor(model)
        for node in racing:
            editor.scope = f"{node.name}/"
            editor.go_before(node)
            editor.bypass(node, _tamed(editor, node))
        return ir.passes.PassResult(model, modified=bool(racing))


def _races(node: ir.Node) -> bool:
    """Tell whether threads would race in `node`; what has an open size is left as it is."""
    if node.domain != "" or node.op_type != "ScatterND" or _reduction(node) == "none":
        return False
    shapes = [static_shape(value) for value in node.inputs]
    if None in shapes or prod(shapes[2] or ()) <= _SMALL:
        return False
    index, table = constant(node.inputs[1]), shapes[0]
    if index is None or table is None:
        return True
    places = index.reshape(-1, index.shape[-1]) % np.array(table[: index.shape[-1]])
    return len(np.unique(places, axis=0)) < len(places)


def _reduction(node: ir.Node) -> str:
    attribute = node.attributes.get("reduction")
    return "none" if attribute is None else attribute.as_string()


def _tamed(b: Editor, node: ir.Node) -> ir.Value:
    """Return what equals the result of `node`."""
    table, index, updates = present(node.inputs)
    shape, depth = shape_of(table), shape_of(index)[-1]
    count, width = prod(shape[:depth]), prod(shape[depth:])
    lines = prod(shape_of(index)[:-1])
    places = flat_places(b, index, shape)
    rows, before = reshape(b, updates, (lines, width)), reshape(b, table, (count, width))
    reduction = _reduction(node)
    if reduction == "add" and table.dtype in (ir.DataType.FLOAT, ir.DataType.DOUBLE):
        after = b.op("Add", before, sum_rows(b, places, rows, count))
    else:
        wide = b.op("Expand", reshape(b, places, (lines, 1)), [lines, width])
        after = b.op("ScatterElements", before, wide, rows, axis=0, reduction=reduction)
    return reshape(b, after, shape)
