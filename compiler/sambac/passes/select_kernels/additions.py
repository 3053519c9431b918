"""Additions, each by the operator of onnxruntime that runs it best.

Those that it runs, or fuses, best (`ChooseAdditions`):

    Sum(a, b)      ->  Add(a, b)           onnxruntime fuses Conv + Add + Relu, but not with Sum
    Sum(a, b, c)   ->  Add(Add(a, b), c)   0.6 of the time: Sum of three has no vector code
    Add(a, b)      ->  Sum(a, b)           if only a LayerNormalization reads it, as one operator or
                                           written out: onnxruntime would fuse the two into
                                           SkipLayerNormalization, which takes 2 to 8 times as long

for operands of one shape, from opset 8 on; the last for float32 rows of at least 16
numbers (shorter ones gain little), and then it is the Sum that stays.

Additions of what is scaled, by its one fused multiply-add (`FuseGatedAdditions`):

    X + Y * k   ->  GatedAdd(X, Y, k)       Mul and Add in either order
    X - Y * k   ->  GatedAdd(X, Y, -k)

for float32 tensors X and Y of one shape, where k is a number for each row, or one constant number
for all (the tensors are then vectors in lanes, with a gate each), and nothing else reads the
product; a Reshape may stand behind it. The bits are the same, and one pass over memory is saved:
0.6 of the time of both operators for 256 K elements, and nothing for fewer than 32 K. The product
itself stays for `eliminate_dead_code`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.lanes import SHORTEST_GATED_ROW, in_lanes
from sambac.graph.nodes import same_shape, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by, scalar

_ADD_TYPES = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_MIN_ROW = 16


def sum_to_adds(editor: Editor, node: ir.Node) -> str | None:
    """Sum(a, b, c) -> Add(Add(a, b), c)."""
    if len(node.inputs) == 2 and _is_normalised(node.outputs[0]):
        return "a LayerNormalization reads it"
    if editor.opset < 8 or node.outputs[0].dtype not in _ADD_TYPES or len(node.inputs) < 2:
        return "Add does not take its place"
    if not _have_shape_of(node.outputs[0], node.inputs):
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
    row = out.shape[-1] if out.shape else None
    if out.dtype != ir.DataType.FLOAT or not isinstance(row, int) or row < _MIN_ROW:
        return "the numbers are no float32 rows of at least 16"
    if not _have_shape_of(out, node.inputs):
        return "the shapes differ or are not known"
    editor.replace(node, "Sum", *node.inputs)
    return None


def _have_shape_of(result: ir.Value, operands: Sequence[ir.Value | None]) -> bool:
    """Tell whether all operands are known to have the shape of the result."""
    return all(value is not None and same_shape(value, result) for value in operands)


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


_DOMAIN = "com.microsoft"
_MIN_ELEMENTS = 1 << 15


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
            rows = in_lanes(prod(shape))
            content = np.full((*rows[:-1], 1), -number if negative else number, np.float32)
            gate = editor.initializer(content, f"{out.name}_gate")
        elif static_shape(gate) != (*rows[:-1], 1) or rows[-1] < SHORTEST_GATED_ROW:
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
