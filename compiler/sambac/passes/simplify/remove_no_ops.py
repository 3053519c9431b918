"""Operators that give back what they read, bit for bit.

    Identity(x)                                                    ->  x
    Dropout(x)                 not training, mask unread           ->  x
    Cast(x, to=type of x)                                          ->  x
    Reshape, Flatten, Squeeze, Unsqueeze, Expand, Tile, Slice (x)
                               shape unchanged and known           ->  x   (Slice: steps 1)
    Transpose(x, perm=0,1,..)                                      ->  x
    Pad(x, 0..0)               pads constant                       ->  x
    Resize(x)                  to the sizes it has, or scales 1    ->  x   (no region cut out)
    Concat(x), Sum(x), Max(x), Min(x), Mean(x), Split(x) to one    ->  x
    Clip(x)                    without bounds                      ->  x
    x * 1, 1 * x, x / 1, x - 0, x ** 1, and x + 0 for integers     ->  x   (shape unchanged)
    f(f(x))                    f = Relu, Abs, Ceil, Floor, Round, Sign   ->  f(x)
    f(f(x))                    f = Neg, Not                        ->  x
    f(x + 0)                   f = Softmax, LogSoftmax             ->  f(x)   (shape unchanged)
    Where(c, x, x)                                                 ->  x      (shape unchanged)

Any other float x + 0 stays: it turns -0 into +0. Exports of attention add masks that are all zeros,
as constants or as Where(all true, 0, y). A value that would be two outputs of a graph, or an
output not computed in its graph, stays as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, same_shape, text_attribute
from sambac.passes.rewriting import Rule, RulePass, constant, integers, made_by, used

_REGIONS = 11
"""The first opset whose Resize reads a region before its scales."""
_NEUTRAL = {"Mul": 1, "Div": 1, "Sub": 0, "Pow": 1, "Add": 0}


def _first_input(editor: Editor, node: ir.Node) -> str | None:
    """Replace the first output by the first input."""
    value = node.inputs[0]
    return editor.bypass(node, value) if value is not None else "there is no input"


def _dropout(editor: Editor, node: ir.Node) -> str | None:
    if used(node.outputs[1:]):
        return "the mask is read"
    if editor.opset < 7 and int_attribute(node, "is_test", 0) == 0:
        return "it trains"
    training = input_at(node, 2)
    if training is not None:
        flag = constant(training)
        if flag is None or bool(flag.any()):
            return "it may train"
    return _first_input(editor, node)


def _cast(editor: Editor, node: ir.Node) -> str | None:
    value = node.inputs[0]
    if value is None or value.dtype is None or value.dtype != int_attribute(node, "to", 0):
        return "the type changes"
    return editor.bypass(node, value)


def _same_shape(editor: Editor, node: ir.Node) -> str | None:
    value = node.inputs[0]
    if value is None or not same_shape(value, node.outputs[0]):
        return "the shape changes or is unknown"
    return _first_input(editor, node)


def _slice(editor: Editor, node: ir.Node) -> str | None:
    steps = input_at(node, 4)
    if steps is not None and set(integers(steps) or (0,)) != {1}:
        return "the steps are not known to be 1"
    return _same_shape(editor, node)


def _transpose(editor: Editor, node: ir.Node) -> str | None:
    perm = node.attributes.get("perm")
    if perm is None or list(perm.as_ints()) != list(range(len(perm.as_ints()))):
        return "the axes change"
    return _first_input(editor, node)


def _pad(editor: Editor, node: ir.Node) -> str | None:
    attribute = node.attributes.get("pads")
    pads = attribute.as_ints() if attribute is not None else integers(input_at(node, 1))
    if pads is None or any(pads):
        return "the pads are not known to be 0"
    return _first_input(editor, node)


def _resize(editor: Editor, node: ir.Node) -> str | None:
    if text_attribute(node, "coordinate_transformation_mode", "") == "tf_crop_and_resize":
        return "it cuts out a region"
    scales = constant(input_at(node, 2 if editor.opset >= _REGIONS else 1))
    if input_at(node, 3) is None and (scales is None or not np.all(scales == 1)):
        return "the scales are not known to be 1"
    return _same_shape(editor, node)


def _only_input(editor: Editor, node: ir.Node) -> str | None:
    if len(node.inputs) != 1:
        return "there are several inputs"
    return _first_input(editor, node)


def _only_output(editor: Editor, node: ir.Node) -> str | None:
    if len(node.outputs) != 1:
        return "there are several outputs"
    return _same_shape(editor, node)


def _clip(editor: Editor, node: ir.Node) -> str | None:
    if any(value is not None for value in node.inputs[1:]) or set(node.attributes):
        return "it has bounds"
    return _first_input(editor, node)


def _neutral(editor: Editor, node: ir.Node) -> str | None:
    left, right = node.inputs[0], node.inputs[1]
    if node.op_type == "Mul" and constant(left) is not None:
        left, right = right, left
    array = constant(right)
    if left is None or array is None or not np.all(array == _NEUTRAL[node.op_type]):
        return "the operand is not known to be neutral"
    if node.op_type == "Add" and (left.dtype is None or not left.dtype.is_integer()):
        return "adding 0 turns -0 into +0"
    if np.signbit(array.astype(np.float64, copy=False)).any():
        return "x - -0 turns -0 into +0"
    rank = None if left.shape is None else len(left.shape)
    stretched = not same_shape(left, node.outputs[0])
    if stretched and (array.size != 1 or rank is None or array.ndim > rank):
        return "the shape changes or is unknown"
    return editor.bypass(node, left)


def _idempotent(editor: Editor, node: ir.Node) -> str | None:
    if made_by(node.inputs[0], node.op_type) is None:
        return "the input is another operator"
    return _first_input(editor, node)


def _involution(editor: Editor, node: ir.Node) -> str | None:
    inner = made_by(node.inputs[0], node.op_type)
    source = inner.inputs[0] if inner is not None else None
    if source is None:
        return "the input is another operator"
    return editor.bypass(node, source)


def _shifted(editor: Editor, node: ir.Node) -> str | None:
    """Softmax(x + 0) -> Softmax(x)."""
    summed = node.inputs[0]
    total = made_by(summed, "Add")
    if summed is None or total is None:
        return "no zeros are added to the input"
    for value, other in (total.inputs, reversed(total.inputs)):
        if value is not None and same_shape(value, summed) and _are_zeros(other):
            node.replace_input_with(0, value)
            return None
    return "no zeros are added to the input"


def _either(editor: Editor, node: ir.Node) -> str | None:
    """Where(c, x, x) -> x."""
    _, one, other = node.inputs
    if one is not other:
        return "it chooses between two values"
    if one is None or not same_shape(one, node.outputs[0]):
        return "the shape changes or is unknown"
    return editor.bypass(node, one)


def _are_zeros(value: ir.Value | None) -> bool:
    """Tell whether `value` is known to be all zeros."""
    choice = made_by(value, "Where")
    if choice is None:
        array = constant(value)
        return array is not None and not array.any()
    which = constant(choice.inputs[0])
    if which is None or bool(which.any()) != bool(which.all()):
        return False
    return _are_zeros(choice.inputs[1 if which.all() else 2])


@dataclass(frozen=True)
class RemoveNoOps(RulePass):
    """Remove operators whose output is their input."""

    name: ClassVar[str] = "remove_no_ops"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Identity": (_first_input,),
        "Dropout": (_dropout,),
        "Cast": (_cast,),
        "Slice": (_slice,),
        "Transpose": (_transpose,),
        "Pad": (_pad,),
        "Resize": (_resize,),
        "Split": (_only_output,),
        "Clip": (_clip,),
        **dict.fromkeys(
            ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Expand", "Tile"), (_same_shape,)
        ),
        **dict.fromkeys(("Concat", "Sum", "Max", "Min", "Mean"), (_only_input,)),
        **dict.fromkeys(_NEUTRAL, (_neutral,)),
        **dict.fromkeys(("Relu", "Abs", "Ceil", "Floor", "Round", "Sign"), (_idempotent,)),
        **dict.fromkeys(("Neg", "Not"), (_involution,)),
        **dict.fromkeys(("Softmax", "LogSoftmax"), (_shifted,)),
        "Where": (_either,),
    }
