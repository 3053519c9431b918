"""Fourier transforms with the digits of their type.

onnxruntime goes through lengths that are no power of two in a way that loses digits: of float32
numbers it keeps four of seven at a length of 400, three at 5,000. In float64 enough are left:

    DFT(x)           ->  Cast(DFT(Cast(x, float64)), float32)     also STFT

And it divides by the length as a float32 number, in float64 too:

    DFT(x, inverse)  ->  DFT(x, inverse) (1 / n) / float32(1 / n)     x in float64, n known
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, input_at, int_attribute
from sambac.passes.rewriting import Rule, RulePass, integers, scalar

_FLOAT, _DOUBLE = ir.DataType.FLOAT, ir.DataType.DOUBLE


def _transform(editor: Editor, node: ir.Node) -> str | None:
    """Let float32 numbers go by float64, and divide those by the length in float64."""
    x, length = node.inputs[0], _length(editor, node)
    if x is not None and x.dtype == _FLOAT:
        return _widened(editor, node, length)
    if x is None or x.dtype != _DOUBLE or not int_attribute(node, "inverse") or not length:
        return "it is no inverse in float64, or its length is open"
    factor = (1 / length) / float(np.float32(1 / length))
    if factor == 1 or _is_multiplied(node.outputs[0], factor):
        return "it divides exactly"
    y = editor.op("DFT", *node.inputs, like=node.outputs[0], **attributes_of(node))
    editor.replace(node, "Mul", y, np.asarray(factor))
    return None


def _frames(editor: Editor, node: ir.Node) -> str | None:
    """Let the frames of a float32 signal go by float64."""
    x, window = node.inputs[0], input_at(node, 2)
    if x is None or x.dtype != _FLOAT:
        return "it is not in float32"
    length = scalar(input_at(node, 3))
    if length is None and window is not None and window.shape is not None:
        known = window.shape[0]
        length = known if isinstance(known, int) else None
    return _widened(editor, node, None if length is None else int(length))


def _widened(editor: Editor, node: ir.Node, length: int | None) -> str | None:
    if length is not None and length.bit_count() <= 1:
        return "its length is a power of two"
    wide = [
        editor.op("Cast", value, to=int(_DOUBLE))
        if value is not None and value.dtype == _FLOAT
        else value
        for value in node.inputs
    ]
    like = ir.Value(name="", type=ir.TensorType(_DOUBLE), shape=node.outputs[0].shape)
    y = editor.op(node.op_type, *wide, like=like, **attributes_of(node))
    editor.replace(node, "Cast", y, to=int(_FLOAT))
    return None


def _is_multiplied(y: ir.Value, factor: float) -> bool:
    """Tell whether this has been done to `y` before."""
    readers = [use.node for use in y.uses()]
    return any(
        reader.op_type == "Mul" and scalar(input_at(reader, 1)) == factor for reader in readers
    )


_AXIS_IS_OPERAND = 20


def _length(editor: Editor, node: ir.Node) -> int | None:
    """Return the length of the transform; None if that is open."""
    x, given = node.inputs[0], input_at(node, 1)
    if given is not None:
        found = integers(given)
        return found[0] if found else None
    if editor.opset < _AXIS_IS_OPERAND:
        axis: tuple[int, ...] | None = (int_attribute(node, "axis", 1),)
    else:
        operand = input_at(node, 2)
        axis = (-2,) if operand is None else integers(operand)
    halved = int_attribute(node, "inverse") and int_attribute(node, "onesided")
    if halved or not axis or x is None or x.shape is None:
        return None
    size = x.shape[axis[0]]
    return size if isinstance(size, int) else None


@dataclass(frozen=True)
class ExactTransforms(RulePass):
    """Write Fourier transforms so that they lose no more digits than their type has."""

    name: ClassVar[str] = "exact_transforms"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"DFT": (_transform,), "STFT": (_frames,)}
