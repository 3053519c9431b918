"""Gradients of operators that move elements: the same move, backwards.

x is the input, y the result, dy the gradient of y.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from math import prod
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.nodes import input_at, int_attribute, is_calm
from sambac.ops.family import GradientRule, InputGradient

from .padding import padded
from .rules import (
    Point,
    cast,
    constant_integers,
    constant_of,
    cut,
    incoming,
    integers_attribute,
    number,
    operand,
    replayed,
    reshape,
    reverse,
    spread,
    surround,
    transpose,
    unary,
)  # fmt: skip
from .windows import Window


def _same(b: Editor, at: Point) -> ir.Value:
    """dx = dy, which the walker sums over the axes along which x was broadcast."""
    return at.dy


def _identity(b: Editor, at: Point) -> ir.Value:
    """dx = dy, but 0 where that is no number if the node is calm."""
    if not is_calm(at.node):
        return at.dy
    return b.op("Where", b.op("IsNaN", at.dy), number(b, 0.0, at.dy), at.dy)


def _reshaped(b: Editor, at: Point) -> ir.Value:
    """dx = dy in the shape of x."""
    return reshape(b, at.dy, shape_of(at.x))


def _transposed(b: Editor, at: Point) -> ir.Value:
    """dx = dy with its axes in the inverse order."""
    axes = range(rank_of(at.dy))
    order = integers_attribute(at.node, "perm") or tuple(reversed(axes))
    return transpose(b, at.dy, sorted(axes, key=order.__getitem__))


def _concatenated(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx_i = the part of dy that x_i is."""
    dy = incoming(node, gradients)
    axis = int_attribute(node, "axis") % rank_of(dy)
    sizes = [shape_of(x)[axis] for x in node.inputs if x is not None]

    def part(start: int, stop: int) -> InputGradient:
        return lambda: cut(b, dy, {axis: (start, stop)})

    stops = accumulate(sizes)
    return [part(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]


def _split(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """dx = all dy_i one after the other, zeros for parts that nothing depends on."""
    axis = int_attribute(node, "axis") % rank_of(operand(node, 0))

    def whole() -> ir.Value:
        used = [i for i, gradient in enumerate(gradients) if gradient is not None]
        sizes = [shape_of(part)[axis] for part in node.outputs]
        before, after = sum(sizes[: used[0]]), sum(sizes[used[-1] + 1 :])
        span = slice(used[0], used[-1] + 1)
        parts = [
            b.zeros(part) if gradient is None else gradient
            for part, gradient in zip(node.outputs[span], gradients[span], strict=True)
        ]
        joined = parts[0] if len(parts) == 1 else b.op("Concat", *parts, axis=axis)
        return surround(b, joined, {axis: (before, after)})

    return [whole]


def _sliced(b: Editor, at: Point) -> ir.Value:
    """dx = dy where x was read, else 0.

    Along an axis that is read in steps, zeros go between the elements of dy; steps back turn it
    round first.
    """
    spans = _spans(at)
    if spans is None:
        return replayed(b, at)
    dx = at.dy
    margins = {}
    for axis, (start, step) in spans.items():
        size, count = shape_of(at.x)[axis], shape_of(at.dy)[axis]
        if step < 0:
            dx = reverse(b, dx, axis, (0, count))
            start, step = start + (count - 1) * step, -step
        dx = spread(b, dx, axis, step)
        begin = min(start, size) if count else 0
        margins[axis] = (begin, size - begin - shape_of(dx)[axis])
    return surround(b, dx, margins)


def _spans(at: Point) -> dict[int, tuple[int, int]] | None:
    """Return first index and step of a Slice by axis, None if they are known only at run time."""
    shape = shape_of(at.x)
    starts = constant_integers(at.node, 1)
    if starts is None:
        return None
    given = [constant_integers(at.node, index) for index in (3, 4)]
    axes, steps = given[0] or tuple(range(len(starts))), given[1] or (1,) * len(starts)
    spans = {}
    for axis, start, step in zip(axes, starts, steps, strict=True):
        size = shape[axis]
        last = size if step > 0 else size - 1
        spans[axis % len(shape)] = (min(max(start + size * (start < 0), 0), last), step)
    return spans


def _tiled(b: Editor, at: Point) -> ir.Value:
    """dx = the sum of all copies in dy."""
    sizes = shape_of(at.x)
    copies = [whole // max(size, 1) for whole, size in zip(shape_of(at.dy), sizes, strict=True)]
    apart = [number for pair in zip(copies, sizes, strict=True) for number in pair]
    axes = [2 * axis for axis, count in enumerate(copies) if count != 1]
    if not axes:
        return at.dy
    summed = b.op("ReduceSum", reshape(b, at.dy, apart), axes, keepdims=0)
    return reshape(b, summed, sizes)


def _triangle(b: Editor, at: Point) -> ir.Value:
    """dx = the same triangle of dy."""
    return b.op("Trilu", at.dy, input_at(at.node, 1), upper=int_attribute(at.node, "upper", 1))


def _reversed_sequences(b: Editor, at: Point) -> ir.Value:
    """dx = dy with the same sequences reversed."""
    return b.op(
        "ReverseSequence",
        at.dy,
        operand(at.node, 1),
        time_axis=int_attribute(at.node, "time_axis", 0),
        batch_axis=int_attribute(at.node, "batch_axis", 1),
    )


def _depth_to_space(b: Editor, at: Point) -> ir.Value:
    """dx = dy with its blocks back in depth, in the order of the mode."""
    size = int_attribute(at.node, "blocksize")
    mode = at.node.attributes.get("mode")
    if mode is None or mode.as_string() == "DCR":
        return b.op("SpaceToDepth", at.dy, blocksize=size)
    batch, depth, height, width = shape_of(at.dy)
    blocks = reshape(b, at.dy, (batch, depth, height // size, size, width // size, size))
    return reshape(b, transpose(b, blocks, (0, 1, 3, 5, 2, 4)), shape_of(at.x))


def _space_to_depth(b: Editor, at: Point) -> ir.Value:
    """dx = dy with its depth back in blocks."""
    size = int_attribute(at.node, "blocksize")
    return b.op("DepthToSpace", at.dy, blocksize=size, mode="DCR")


def _centered(b: Editor, at: Point) -> ir.Value:
    """dx = dy without what was padded, with zeros where x was cropped."""
    spans, margins = {}, {}
    for axis, (old, new) in enumerate(zip(shape_of(at.x), shape_of(at.dy), strict=True)):
        spare = abs(new - old) // 2
        spans[axis] = (spare, spare + old) if new > old else (0, new)
        margins[axis] = (spare, old - new - spare) if new < old else (0, 0)
    return surround(b, cut(b, at.dy, spans), margins)


def _overlapped(b: Editor, at: Point) -> ir.Value:
    """dx = what each block sees of dy."""
    block, image = constant_integers(at.node, 2), shape_of(at.dy)[2:]
    assert block is not None  # `open_blocks`
    ones = (1,) * len(block)
    strides = integers_attribute(at.node, "strides") or ones
    dilations = integers_attribute(at.node, "dilations") or ones
    pads = integers_attribute(at.node, "pads") or (0,) * 2 * len(block)
    sizes = zip(image, block, strides, dilations, pads, pads[len(block) :], strict=False)
    counts = tuple((i + x + y - (k - 1) * d - 1) // s + 1 for i, k, s, d, x, y in sizes)
    window = Window(block, strides, dilations, pads[: len(block)], image, counts)
    margins = zip(window.begins, window.ends, strict=True)
    whole = surround(b, at.dy, {2 + axis: margin for axis, margin in enumerate(margins)})
    flat = reshape(b, whole, (*shape_of(at.dy)[:2], prod(window.padded)))
    return reshape(b, b.op("Gather", flat, window.index(), axis=2), shape_of(at.x))


def open_blocks(node: ir.Node) -> str | None:
    """Return why a Col2Im has no gradient: a run decides on its blocks."""
    return None if constant_integers(node, 2) else "its block shape is known only at run time"


def _dropped(b: Editor, at: Point) -> ir.Value:
    """dx = dy, or dy * kept / (1 - ratio) where a run decides whether elements are dropped.

    Dropouts that always drop are products with masks before gradients are made.
    """
    training = input_at(at.node, 2)
    constant = constant_of(training)
    if training is None or (constant is not None and not constant.any()):
        return at.dy
    ratio = input_at(at.node, 1) or number(b, 0.5, at.x)
    one = number(b, 1.0, ratio)
    scale = b.op("Where", training, b.op("Reciprocal", b.op("Sub", one, ratio)), one)
    kept = b.op("Mul", at.dy, cast(b, b.add_output(at.node, 1), at.dy))
    return b.op("Mul", kept, cast(b, scale, at.dy))


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "CenterCropPad": unary(_centered),
    "Col2Im": unary(_overlapped),
    "Concat": _concatenated,
    "DepthToSpace": unary(_depth_to_space),
    "Dropout": unary(_dropped),
    "Expand": unary(_same),
    "Flatten": unary(_reshaped),
    "Identity": unary(_identity),
    "Pad": padded,
    "Reshape": unary(_reshaped),
    "ReverseSequence": unary(_reversed_sequences),
    "Slice": unary(_sliced),
    "SpaceToDepth": unary(_space_to_depth),
    "Split": _split,
    "Squeeze": unary(_reshaped),
    "Tile": unary(_tiled),
    "Transpose": unary(_transposed),
    "Trilu": unary(_triangle),
    "Unsqueeze": unary(_reshaped),
    "com.microsoft.ExpandDims": unary(_reshaped),
    "com.microsoft.Trilu": unary(_triangle),
})  # fmt: skip
