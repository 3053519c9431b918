"""Resizes between Transposes, which onnxruntime takes to the other side of them.

Numbers of all axes (`SpellSizes`), as it permutes those that are not there:

    Resize(x, -, scales = [2, 2], axes = [2, 3])  ->  Resize(x, -, scales = [1, 1, 2, 2])
    Resize(x, -, -, sizes, axes)                  ->  Resize(x, -, -, sizes of all)

Sizes that keep the proportions of an image say how to by their axes, and stay.

Axes that stay where they are (`KeepLayouts`):

    Resize(x)  ->  Reshape(Resize(Reshape(x, [1, -1, 0, 0])), [-1, C, 0, 0])    x [N, C, H, W]
               ->  Reshape(Resize(Reshape(x, [-1, 1, 0, 0])), [1, -1, 0, 0])    N is 1

where it is cubic without antialiasing and does not surely make images larger, for which there is no
kernel with the channels last; and where it still names its axes. What is not known of N and C is
asked for in the run. No Transpose goes through a Reshape that joins axes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, input_at, int_attribute, static_shape, text_attribute
from sambac.passes.rewriting import Rule, RulePass, constant

_POLICY = "keep_aspect_ratio_policy"
_ROI, _SCALES, _SIZES = 1, 2, 3
_IMAGES = 4
"""So many axes have images; the last two are resized."""


def spell_sizes(editor: Editor, node: ir.Node) -> str | None:
    """Write the factors or sizes of named axes as those of all axes."""
    x, axes = node.inputs[0], node.attributes.get("axes")
    if axes is None or x is None or x.shape is None:
        return "it has them, or the number of axes is not known"
    named, rank = np.array([axis % len(x.shape) for axis in axes.as_ints()]), len(x.shape)
    if text_attribute(node, _POLICY, "stretch") != "stretch" and len(named) > 1:
        return "its sizes keep proportions of the axes that it names"
    roi, scales, sizes = (input_at(node, at) for at in (_ROI, _SCALES, _SIZES))
    region = constant(roi)
    if roi is not None and region is None:
        return "the region that it takes is not known"
    if region is not None and region.size:
        whole = np.repeat(np.array([0, 1], region.dtype), rank)
        whole[np.concatenate([named, named + rank])] = region
        node.replace_input_with(_ROI, editor.constant(whole))
    if sizes is not None:
        own = None if static_shape(x) is None else np.array(static_shape(x), np.int64)
        node.replace_input_with(_SIZES, _of_all(editor, x, own, named, sizes))
    elif scales is not None:
        ones = np.ones(rank, np.float32)
        node.replace_input_with(_SCALES, _of_all(editor, x, ones, named, scales))
    del node.attributes["axes"]
    node.attributes.pop(_POLICY, None)
    return None


def _of_all(
    editor: Editor, x: ir.Value, others: Array | None, named: Array, given: ir.Value
) -> ir.Value:
    """Return what is `given` of the `named` axes of `x`, between that of others, or their sizes."""
    known = constant(given)
    if known is not None and others is not None:
        everything = others.copy()
        everything[named] = known
        return editor.constant(everything)
    base = editor.op("Shape", x) if others is None else editor.constant(others)
    return editor.op("ScatterElements", base, editor.constant(named), given, axis=0)


@dataclass(frozen=True)
class SpellSizes(RulePass):
    """Write what a Resize says of named axes for all axes."""

    name: ClassVar[str] = "spell_sizes"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Resize": (spell_sizes,)}


def keep_layout(editor: Editor, node: ir.Node) -> str | None:
    """Put a Resize between Reshapes that no Transpose goes through."""
    x, result, axes = node.inputs[0], node.outputs[0], node.attributes.get("axes")
    if x is None or x.shape is None or len(x.shape) != _IMAGES:
        return "it resizes no images"
    if axes is None and not _shrinks(node, x.shape):
        return "there are kernels for channels at any place"
    if axes is not None and {axis % _IMAGES for axis in axes.as_ints()} != {2, 3}:
        return "it resizes other axes than those of images"
    if result.shape is not None and 0 in tuple(result.shape):
        return "nothing is left of its images, whose axes would not be told apart again"
    alone = x.shape[0] == 1
    joined = (-1, 1, 0, 0) if alone else (1, -1, 0, 0)
    like = ir.Value(name="", type=x.type, shape=_shape(x.shape, alone))
    operands = list(node.inputs)
    operands[0] = editor.op("Reshape", x, editor.constant(np.array(joined)), like=like)
    if axes is None and len(operands) > _SIZES:
        operands[_SIZES] = _joined_sizes(editor, operands[_SIZES], alone)
    shape = None if result.shape is None else _shape(result.shape, alone)
    like = ir.Value(name="", type=result.type, shape=shape)
    resized = editor.op("Resize", *operands, like=like, **attributes_of(node))
    editor.replace(node, "Reshape", resized, _parted(editor, x, x.shape))
    return None


def _shrinks(node: ir.Node, shape: ir.Shape) -> bool:
    """Tell whether a Resize may make an axis smaller in the way that has one kernel alone."""
    if text_attribute(node, "mode", "nearest") != "cubic" or int_attribute(node, "antialias"):
        return False
    factors, wanted = constant(input_at(node, _SCALES)), constant(input_at(node, _SIZES))
    if factors is not None and factors.size:
        return bool(np.any(factors < 1))
    if wanted is None:
        return True
    pairs = zip(shape, wanted, strict=True)
    return any(not isinstance(size, int) or size > new for size, new in pairs)


def _shape(shape: ir.Shape, alone: bool) -> ir.Shape:
    """Return the shape of images whose first two axes are joined."""
    images, channels, *image = shape
    known = isinstance(images, int) and isinstance(channels, int)
    both = images * channels if known else None
    return ir.Shape([both, 1, *image] if alone else [1, both, *image])


def _parted(editor: Editor, x: ir.Value, shape: ir.Shape) -> ir.Value:
    """Return what parts images and channels again, that are joined, as `x` of `shape` has them."""
    images, channels = (size if isinstance(size, int) else None for size in shape[:2])
    if images == 1 or channels is not None:
        return editor.constant(np.array([1, -1, 0, 0] if images == 1 else [-1, channels, 0, 0]))
    if images is not None:
        return editor.constant(np.array([images, -1, 0, 0]))
    both = editor.op("Slice", editor.op("Shape", x), [0], [2])
    return editor.op("Concat", both, editor.constant(np.array([0, 0])), axis=0)


def _joined_sizes(editor: Editor, sizes: ir.Value | None, alone: bool) -> ir.Value:
    """Return what `sizes` of four axes say, for joined images."""
    known = constant(sizes)
    if known is not None:
        product = known[0] * known[1]
        new = [product, 1, *known[2:]] if alone else [1, product, *known[2:]]
        return editor.constant(np.array(new, np.int64))
    images, channels, image = (
        editor.op("Slice", sizes, [start], [end]) for start, end in ((0, 1), (1, 2), (2, 4))
    )
    one, both = editor.constant(np.array([1])), editor.op("Mul", images, channels)
    return editor.op("Concat", *((both, one) if alone else (one, both)), image, axis=0)


@dataclass(frozen=True)
class KeepLayouts(RulePass):
    """Keep onnxruntime from resizing images whose channels are last where it cannot."""

    name: ClassVar[str] = "keep_layouts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Resize": (keep_layout,)}
