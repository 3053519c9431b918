"""Arithmetic and reductions by cheaper operators that give the same numbers.

    x ** 2   ->  x * x          0.7 of the time
    x / c    ->  x * (1 / c)    0.7 of the time; c a power of two whose inverse is a normal number

for floats, to the bit. A square that goes into a mean stays a Pow, and a division of a matrix
product a Div: onnxruntime recognises normalisations and attention by these.

PyTorch's attention, whose mask may hide a whole row, where shares are NaN, and nowhere below 0,
takes one operator instead of two, to the bit and in a third of their time:

    Where(IsNaN(s), 0, s)  ->  ThresholdedRelu(s, 0)    s = Softmax(x) in float32

onnxruntime has a quick kernel for reductions along the first axis. Where axes of one element stand
before the one that is reduced, it takes another, which reads down the columns: 3 to 16 times as
long for sums, and 2 to 4 times for maxima where the channels fill the same lines of the cache. Its
softmaxes along other axes than the last one move that to the end and back. So, for float32 x of
shape [1, C, pixels], with all in between as [C, pixels] and in its own shape again at the end,

    ReduceSum(x, axis of C)    ->  ReduceSum(x, first axis)    ReduceMean too; the same bits
    ReduceMax(x, axis of C)    ->  ReduceMax(x, first axis)    ReduceMin too; for such pixels
    Softmax(x, axis of C)      ->  e / ReduceSum(e),  e = exp(x - ReduceMax(x))    0.15 to 0.35

the last rounded in another way. What is not finite gives the same results as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, same_shape, static_shape
from sambac.passes.rewriting import Rule, RulePass, constant, integers, made_by, scalar, used

_FLOATS = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_FEWEST = 4096
"""So many elements take longer than the operators that are added."""
_PIXELS = 16
"""So many numbers side by side are a vector."""
_ALIASES = 1024
"""Pixels of which a multiple fills the same lines of a cache, channel by channel."""
_THRESHOLDS = 10
"""The first opset with ThresholdedRelu."""
_SOFTMAX_OF_AN_AXIS, _AXES_ARE_INPUTS = 13, 18
"""The opsets from which Softmax concerns one axis, and all reductions take axes as an input."""


def square(editor: Editor, node: ir.Node) -> str | None:
    """Pow(x, 2) -> x * x."""
    x, exponent = node.inputs
    if x is None or x.dtype not in _FLOATS or scalar(exponent) != 2:
        return "it is no square of floats"
    if not same_shape(x, node.outputs[0]):
        return "the shape changes or is unknown"
    if any(reader.op_type == "ReduceMean" for reader in node.outputs[0].consumers()):
        return "it is part of a normalisation"
    editor.replace(node, "Mul", x, x)
    return None


def divide(editor: Editor, node: ir.Node) -> str | None:
    """Div(x, c) -> x * (1 / c)."""
    x, divisor = node.inputs
    array = constant(divisor)
    if x is None or divisor is None or x.dtype not in _FLOATS or array is None:
        return "it is no division of floats by a constant"
    if made_by(x, "MatMul") is not None:
        return "it may be part of an attention"
    with np.errstate(all="ignore"):
        inverse = 1 / array
    usable = np.isfinite(inverse) & (np.abs(inverse) >= np.finfo(array.dtype).tiny)
    if not np.all(usable & (np.abs(np.frexp(array)[0]) == 0.5)):
        return "the inverse would be rounded"
    factor = editor.initializer(inverse, f"{divisor.name}_inverse", origin=[divisor])
    editor.replace(node, "Mul", x, factor)
    return None


def shares(editor: Editor, node: ir.Node) -> str | None:
    """Where(IsNaN(s), 0, s) -> ThresholdedRelu(s, 0), s = Softmax(x)."""
    wrong, instead, kept = node.inputs
    test, zeros = made_by(wrong, "IsNaN"), constant(instead)
    if kept is None or made_by(kept, "Softmax") is None or kept.dtype != ir.DataType.FLOAT:
        return "it is no choice of shares in float32, which are 0 or more"
    if test is None or test.inputs[0] is not kept or not _is_zero(zeros):
        return "it is not 0 in the place of NaN"
    if editor.opset < _THRESHOLDS or kept.shape is None or kept.shape != node.outputs[0].shape:
        return "the shape changes or is unknown, or the opset is too old"
    editor.replace(node, "ThresholdedRelu", kept, alpha=0.0)
    if not used(test.outputs):
        editor.remove(test)  # else the shares had two readers until dead code goes
    return None


def _is_zero(content: Array | None) -> bool:
    """Tell whether a constant is 0 throughout, and not -0."""
    return content is not None and not np.any(content) and not np.any(np.signbit(content))


@dataclass(frozen=True)
class _Image:
    """A value of shape [1, .., channels, *pixels]."""

    value: ir.Value
    channels: int
    pixels: int


def reduce_first(editor: Editor, node: ir.Node) -> str | None:
    """ReduceSum([1, C, ..]) -> ReduceSum([C, ..])."""
    given = node.attributes.get("axes")
    axes = integers(input_at(node, 1)) if given is None else tuple(given.as_ints())
    image = _image(node.inputs[0], axes or ())
    own = static_shape(node.outputs[0])
    if image is None or own is None:
        return "it is no reduction of the channels of one image"
    if node.op_type in ("ReduceMax", "ReduceMin") and image.pixels % _ALIASES:
        return "columns are read as quickly"
    flat = editor.op("Reshape", image.value, [image.channels, image.pixels])
    editor.replace(node, "Reshape", _reduced(editor, node.op_type, flat), list(own))
    return None


def share_channels(editor: Editor, node: ir.Node) -> str | None:
    """Softmax([1, C, ..]) -> e / ReduceSum(e) with e = exp(x - ReduceMax(x))."""
    image = _image(node.inputs[0], (int_attribute(node, "axis", -1),))
    own = static_shape(node.outputs[0])
    if image is None or own is None or editor.opset < _SOFTMAX_OF_AN_AXIS:
        return "it is no softmax over the channels of one image"
    flat = editor.op("Reshape", image.value, [image.channels, image.pixels])
    e = editor.op("Exp", editor.op("Sub", flat, _reduced(editor, "ReduceMax", flat), like=flat))
    shares = editor.op("Div", e, _reduced(editor, "ReduceSum", e), like=flat)
    editor.replace(node, "Reshape", shares, list(own))
    return None


def _image(x: ir.Value | None, axes: Sequence[int]) -> _Image | None:
    """Return what is reduced along `axes`, if that is one axis behind others of one element."""
    shape = static_shape(x)
    if x is None or shape is None or x.dtype != ir.DataType.FLOAT or len(axes) != 1:
        return None
    axis = axes[0] % len(shape) if shape else 0
    channels, pixels = prod(shape[axis : axis + 1]), prod(shape[axis + 1 :])
    if axis == 0 or prod(shape[:axis]) != 1 or pixels < _PIXELS or channels * pixels < _FEWEST:
        return None
    return _Image(x, channels, pixels)


def _reduced(editor: Editor, op_type: str, flat: ir.Value) -> ir.Value:
    """Put a reduction of [channels, pixels] to [1, pixels]."""
    first = 13 if op_type == "ReduceSum" else _AXES_ARE_INPUTS
    if editor.opset >= first:
        return editor.op(op_type, flat, [0])
    return editor.op(op_type, flat, axes=[0])


@dataclass(frozen=True)
class ReduceStrength(RulePass):
    """Rewrite powers, divisions, reductions and softmaxes to what is less work."""

    name: ClassVar[str] = "reduce_strength"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Pow": (square,),
        "Div": (divide,),
        **dict.fromkeys(("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"), (reduce_first,)),
        "Softmax": (share_channels,),
        "Where": (shares,),
    }
