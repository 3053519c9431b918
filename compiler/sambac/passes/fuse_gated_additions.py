"""Additions of what is scaled, by onnxruntime's one fused multiply-add.

    X + Y * k   ->  GatedAdd(X, Y, k)       Mul and Add in either order
    X - Y * k   ->  GatedAdd(X, Y, -k)

for float32 tensors X and Y of one shape, where k is a number for each row, or one constant number
for all (the tensors are then vectors, with one gate), and nothing else reads the product; a Reshape
may stand behind it. The bits are the same, and one pass over memory is saved: 0.6 of the time of
both operators for 256 K elements, and nothing for fewer than 32 K. The product itself stays for
`eliminate_dead_code`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape

from .rewriting import Rule, RulePass, has_one_reader, made_by, scalar

_DOMAIN = "com.microsoft"
_MIN_ELEMENTS = 1 << 15
_MIN_ROW = 64


def fuse_addition(editor: Editor, node: ir.Node) -> str | None:
    """Add(X, Mul(Y, k)) -> GatedAdd(X, Y, k)."""
    first, second = node.inputs
    if _fuse(editor, node, first, second) or _fuse(editor, node, second, first):
        return None
    return "no operand is a scaled tensor of the same shape that nothing else reads"


def fuse_subtraction(editor: Editor, node: ir.Node) -> str | None:
    """Sub(X, Mul(Y, k)) -> GatedAdd(X, Y, -k)."""
    x, product = node.inputs
    if _fuse(editor, node, x, product, negative=True):
        return None
    return "what is subtracted is no scaled tensor of the same shape that nothing else reads"


def _fuse(
    editor: Editor,
    node: ir.Node,
    x: ir.Value | None,
    product: ir.Value | None,
    negative: bool = False,
) -> bool:
    """Rewrite `node`, the sum of `x` and `product`, or their difference; tell whether it was."""
    out = node.outputs[0]
    shape = static_shape(out)
    scaling = _scaling(product)
    if x is None or scaling is None or shape is None or out.is_graph_output():
        return False
    if out.dtype != ir.DataType.FLOAT or prod(shape) < _MIN_ELEMENTS:
        return False
    if static_shape(x) != shape or static_shape(product) != shape:
        return False
    rows = static_shape(scaling.outputs[0])
    for y, gate in (scaling.inputs, reversed(scaling.inputs)):
        if y is None or gate is None or rows is None or static_shape(y) != rows:
            continue
        number = scalar(gate)
        if number is not None:
            content = np.array([-number if negative else number], np.float32)
            gate = editor.initializer(content, f"{out.name}_gate")
            rows = (prod(shape),)
        elif static_shape(gate) != (*rows[:-1], 1) or rows[-1] < _MIN_ROW:
            continue
        elif negative:
            gate = editor.op("Neg", gate, like=gate)
        _put(editor, node, (x, y), gate, rows)
        return True
    return False


def _scaling(product: ir.Value | None) -> ir.Node | None:
    """Return the Mul that makes `product`, perhaps before a Reshape, if nothing else reads it."""
    if product is None or not has_one_reader(product):
        return None
    reshape = made_by(product, "Reshape")
    if reshape is not None:
        return _scaling(reshape.inputs[0])
    return made_by(product, "Mul")


def _put(
    editor: Editor,
    node: ir.Node,
    tensors: tuple[ir.Value, ir.Value],
    gate: ir.Value,
    shape: tuple[int, ...],
) -> None:
    """Put x + y * gate in the place of `node`, calculated on tensors of `shape`."""
    out = node.outputs[0]
    x, y = (_reshaped(editor, tensor, shape) for tensor in tensors)
    own = static_shape(out)
    if own == shape:
        editor.replace(node, "GatedAdd", x, y, gate, domain=_DOMAIN)
        return
    like = ir.val("", out.dtype, shape)
    total = editor.op("GatedAdd", x, y, gate, like=like, domain=_DOMAIN)
    back = editor.initializer(np.asarray(own, np.int64), f"{out.name}_shape")
    editor.replace(node, "Reshape", total, back)


def _reshaped(editor: Editor, value: ir.Value, shape: tuple[int, ...]) -> ir.Value:
    """Return `value` in `shape`."""
    if static_shape(value) == shape:
        return value
    wanted = editor.initializer(np.asarray(shape, np.int64), f"{value.name}_rows")
    return editor.op("Reshape", value, wanted, like=ir.val("", value.dtype, shape))


@dataclass(frozen=True)
class FuseGatedAdditions(RulePass):
    """Add scaled tensors in one operator."""

    name: ClassVar[str] = "fuse_gated_additions"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Mul"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Add": (fuse_addition,),
        "Sub": (fuse_subtraction,),
    }
