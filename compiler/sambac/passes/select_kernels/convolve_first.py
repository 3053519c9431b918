"""Pointwise convolutions before an image is enlarged instead of after it, on fewer pixels.

Interpolating and a pointwise convolution are both linear, one over pixels and one over channels,
and the weights of an interpolation sum to 1 at every pixel, so that a bias stays what it is. With
a 1x1 convolution of stride 1

    Conv(Resize(x), W, B)             ->  Resize(Conv(x, W, B))                  convolve_first
    Conv(Concat(Resize(x), y), W, B)  ->  Conv(y, Wy, B) + Resize(Conv(x, Wx))   convolve_apart

if nothing else reads what is between, W is constant (where it is cut), and the arithmetic that is
saved outweighs the images that are made. Heads of segmentation networks enlarge the results of all
stages to the size of the first, stack them and mix their channels: of the four parts of SegFormer's
mixing, three are done on a quarter, a sixteenth and a 64th of the pixels.

Results differ by rounding alone, as sums are taken in another order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, Operand
from sambac.graph.nodes import attributes_of, input_at, int_attribute, text_attribute
from sambac.passes.rewriting import (
    Rule,
    RulePass,
    constant,
    derived_name,
    has_one_reader,
    integers,
    made_by,
)

RESIZED, ADDED = 60, 20
"""What it takes to interpolate an element, and to add two, where to multiply and add two inside of
a convolution is 1 (1.2 ns, 0.4 ns and 0.02 ns were measured)."""


@dataclass(frozen=True)
class _Enlarging:
    """A Resize of `small` to more pixels and no other channels, of which there is one reader."""

    node: ir.Node
    small: ir.Value
    channels: int
    pixels: tuple[int, int]
    """Of the small image, and of the large one."""

    def saved(self, results: int) -> int:
        """What a convolution to so many channels saves if it comes before, in the unit above."""
        before, after = self.pixels
        arithmetic = self.channels * results * (after - before)
        return arithmetic - RESIZED * (results - self.channels) * after

    def pays(self, results: int) -> bool:
        """Tell whether it saves more than the addition of what comes of it costs."""
        return self.saved(results) > ADDED * results * self.pixels[1]

    def operands(self, channels: int) -> list[Operand] | None:
        """Return what follows the image for so many channels; None where channels may be mixed."""
        given: list[Operand] = list(self.node.inputs[1:])  # region, scales, sizes; or scales alone
        axes = self.node.attributes.get("axes")
        if axes is not None:
            return given if min(axes.as_ints()) > 1 else None
        if input_at(self.node, 3) is None:
            scales = constant(self.node.inputs[min(2, len(given))])
            return given if scales is not None and 1 in scales.reshape(-1)[1:2] else None
        sizes = integers(input_at(self.node, 3))
        return None if sizes is None else [*given[:2], (sizes[0], channels, *sizes[2:])]


def convolve_first(editor: Editor, node: ir.Node) -> str | None:
    """Conv(Resize(x), W, B) -> Resize(Conv(x, W, B))."""
    results = pointwise_results(node)
    resize = _enlarging(node.inputs[0])
    if results is None or resize is None:
        return "it is not pointwise, or reads no enlarged image"
    if resize.saved(results) <= 0:
        return "it would be no less work before"
    small = _convolved(editor, node, resize.small, *node.inputs[1:])
    operands = resize.operands(results) or ()
    editor.replace(node, "Resize", small, *operands, **attributes_of(resize.node))
    editor.remove(resize.node)
    return None


def convolve_apart(editor: Editor, node: ir.Node) -> str | None:
    """Conv(Concat(Resize(x), y), W, B) -> Conv(y, Wy, B) + Resize(Conv(x, Wx))."""
    results, stack = pointwise_results(node), made_by(node.inputs[0], "Concat")
    weight, kernel = node.inputs[1], constant(node.inputs[1])
    if results is None or weight is None or kernel is None:
        return "it is not pointwise, or its weight is no constant"
    taken = _stacked(stack) if stack is not None else None
    if stack is None or taken is None:
        return "it reads no stack of channels of its own"
    whole: list[tuple[ir.Value, slice]] = []
    early: list[tuple[_Enlarging, slice]] = []
    for value, part in taken:
        resize = _enlarging(value)
        if resize is not None and resize.pays(results):
            early.append((resize, part))
        else:
            whole.append((value, part))
    if not early:
        return "nothing in the stack is so much enlarged that it pays"

    def weights(*parts: slice) -> ir.Value:
        cut = np.concatenate([kernel[:, part] for part in parts], axis=1)
        return editor.initializer(cut, derived_name(weight, "part"), origin=(weight,))

    terms: list[ir.Value] = []
    bias = input_at(node, 2)
    if whole:
        values, parts = zip(*whole, strict=True)
        y = editor.op("Concat", *values, axis=1) if len(values) > 1 else values[0]
        terms.append(_convolved(editor, node, y, weights(*parts), bias))
    for resize, part in early:
        once = () if terms else (bias,)
        small = _convolved(editor, node, resize.small, weights(part), *once)
        operands, how = resize.operands(results) or (), attributes_of(resize.node)
        terms.append(editor.op("Resize", small, *operands, like=node.outputs[0], **how))
    first = reduce(lambda total, term: editor.op("Add", total, term, like=term), terms[:-1])
    editor.replace(node, "Add", first, terms[-1])
    editor.remove(stack)
    for resize, _ in early:
        editor.remove(resize.node)
    return None


def pointwise_results(conv: ir.Node) -> int | None:
    """Return how many channels a pointwise convolution gives; None where it is none."""
    weight, out = conv.inputs[1], conv.outputs[0]
    strides, pads = conv.attributes.get("strides"), conv.attributes.get("pads")
    if weight is None or weight.shape is None or any(size != 1 for size in weight.shape[2:]):
        return None
    if text_attribute(conv, "auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        return None
    if strides is not None and prod(strides.as_ints()) != 1:
        return None
    if pads is not None and any(pads.as_ints()):
        return None
    if int_attribute(conv, "group", 1) != 1 or out.dtype != ir.DataType.FLOAT:
        return None
    return _channels(out)


def _stacked(stack: ir.Node) -> list[tuple[ir.Value, slice]] | None:
    """Return the values stacked, with the channels that each is; None if they are not so."""
    values = [value for value in stack.inputs if value is not None]
    channels = [_channels(value) for value in values]
    sizes = [count for count in channels if count is not None]
    if int_attribute(stack, "axis", 0) != 1 or not has_one_reader(stack.outputs[0]):
        return None
    if len(values) < 2 or len(sizes) < len(values) or 0 in sizes:  # no convolution is of nothing
        return None
    ends = accumulate(sizes)
    return [
        (value, slice(end - size, end))
        for value, size, end in zip(values, sizes, ends, strict=True)
    ]


def _enlarging(value: ir.Value | None) -> _Enlarging | None:
    """Return what makes a large image, if it may as well come after a pointwise convolution."""
    node = made_by(value, "Resize")
    if node is None or value is None or not has_one_reader(value):
        return None
    placed = text_attribute(node, "coordinate_transformation_mode", "half_pixel")
    policy = text_attribute(node, "keep_aspect_ratio_policy", "stretch")
    if placed == "tf_crop_and_resize" or policy != "stretch":  # numbers from outside; all axes
        return None
    small = node.inputs[0]
    channels, pixels, fewer = _channels(value), _pixels(value), _pixels(small)
    if small is None or channels is None or pixels is None or fewer is None or fewer >= pixels:
        return None
    if _channels(small) != channels or small.shape[0] != value.shape[0]:  # type: ignore[index]
        return None
    found = _Enlarging(node, small, channels, (fewer, pixels))
    return found if found.operands(channels) is not None else None


def _channels(value: ir.Value) -> int | None:
    size = value.shape[1] if value.shape is not None and len(value.shape) > 2 else None
    return size if isinstance(size, int) else None


def _pixels(value: ir.Value | None) -> int | None:
    """Return how many pixels the image has; None where that is not known."""
    if value is None or value.shape is None:
        return None
    sizes = [size for size in value.shape[2:] if isinstance(size, int)]
    return prod(sizes) if len(sizes) == len(value.shape) - 2 else None


def _convolved(
    editor: Editor, conv: ir.Node, image: ir.Value, *weights: ir.Value | None
) -> ir.Value:
    """Put the convolution of another image, with these weights."""
    return editor.op("Conv", image, *weights, **attributes_of(conv))


@dataclass(frozen=True)
class ConvolveFirst(RulePass):
    """Move pointwise convolutions from behind enlarged images to before them."""

    name: ClassVar[str] = "convolve_first"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Conv": (convolve_first, convolve_apart)}
