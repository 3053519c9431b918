"""Gradients of pooling: each output's gradient goes back to the elements of its window."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.control_flow import choose
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute
from sambac.ops.family import InputGradient

from .axis_maxima import goes_by_axis, to_first_maxima
from .rules import (
    Point,
    apply_along,
    incoming,
    integers_attribute,
    masking_readers,
    may_be_infinite,
    operand,
    reshape,
    surround,
)
from .windows import Array, Window, window_of

Gradients = Sequence[InputGradient | None]


def max_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y[o] = max of a window: dx[argmax of the window] += dy[o]; the first maximum counts.

    Masks of equals make no number of an infinite dy for those that are no maxima: indices do not.
    """
    dy = incoming(node, grads)
    window, x, y = window_of(node), operand(node, 0), node.outputs[0]
    masks = x.dtype == ir.DataType.FLOAT and not may_be_infinite(Point(node, dy))
    if masks and _is_repeatable(window) and len(window.kernel) == 2:
        return (lambda: _to_equals(b, dy, x, y, window),)
    if masks and goes_by_axis(x, window):
        return (lambda: to_first_maxima(b, x, y, dy, window),)
    return (lambda: _to_maxima(b, dy, _indices(b, node, window), x, window),)


def _to_equals(b: Editor, dy: ir.Value, x: ir.Value, y: ir.Value, window: Window) -> ir.Value:
    """Return `dy` where `x` equals the maximum of its window; of several equals, at the first.

    That takes a third of the time of the kernel that gives indices, which decides element by
    element. Where no channel has more equals than windows that have any, which is to be expected of
    numbers that come out of sums, no window has two. Of what a Relu gives many are zeros, which
    equal nothing here: whatever gradient they had, it would stop at the Relu.
    """
    maker, sought = x.producer(), y
    if maker is not None and (maker.domain, maker.op_type) == ("", "Relu"):
        sought = b.op("Max", y, float(np.finfo(np.float32).smallest_subnormal))
    equal = b.op("Cast", b.op("Equal", x, _repeated(b, sought, window)), to=x.dtype)
    spread = _repeated(b, dy, window)
    most, count = _by_channel(b, equal), float(window.count)
    if sought is not y or masking_readers(y):  # a window of zeros, or with a NaN, has no equal
        seen = b.op("Cast", b.op("Equal", y, sought), to=x.dtype)
        most, count = b.op("Sub", most, _by_channel(b, seen)), 0.0
    return choose(
        b,
        b.op("Greater", b.op("ReduceMax", most, keepdims=0), count),
        lambda inner: inner.op("Mul", spread, _first_of(inner, equal, window)),
        lambda inner: inner.op("Mul", spread, equal),
    )


def _by_channel(b: Editor, image: ir.Value) -> ir.Value:
    """Return [N * C] from `image` [N, C, *]: the sum of each channel of each image."""
    batch, channels, *sizes = shape_of(image)
    return b.op("ReduceSum", reshape(b, image, (batch * channels, prod(sizes))), [1], keepdims=0)


def _first_of(b: Editor, equal: ir.Value, window: Window) -> ir.Value:
    """Return 1 at the first of the ones of each window in `equal`, and 0 elsewhere.

    Each tap has a rank, the first the highest, and the highest that is in a window is looked for.
    """
    ranks = np.arange(window.taps, 0, -1, dtype=np.float32).reshape(window.kernel)
    tiled = np.tile(ranks, window.positions)
    ranked = b.op("Mul", equal, np.pad(tiled, [(0, rest) for rest in window.rests])[None, None])
    first = b.op("MaxPool", ranked, kernel_shape=window.kernel, strides=window.strides)
    return b.op("Cast", b.op("Equal", ranked, _repeated(b, first, window)), to=equal.dtype)


def _indices(b: Editor, node: ir.Node, window: Window) -> ir.Value:
    """Return where in the flat input each maximum lies, counted row by row."""
    if int_attribute(node, "storage_order") == 0:
        return b.add_output(node, 1)
    made = b.ops(
        "MaxPool",
        operand(node, 0),
        outputs=2,
        **window.attributes,
    )
    return made[1]


def _to_maxima(b: Editor, dy: ir.Value, indices: ir.Value, x: ir.Value, window: Window) -> ir.Value:
    sizes = zip(window.image, window.kernel, window.strides, window.positions, strict=True)
    unpooled = [
        size == (count - 1) * stride + kernel - begin - end
        for (size, kernel, stride, count), begin, end in zip(
            sizes, window.begins, window.ends, strict=True
        )
    ]
    if not window.separate or not all(unpooled):
        flat = b.op("Reshape", b.zeros(x), [-1])
        where, what = b.op("Reshape", indices, [-1]), b.op("Reshape", dy, [-1])
        total = b.op("ScatterElements", flat, where, what, axis=0, reduction="add")
        return b.op("Reshape", total, shape_of(x))
    return b.op(
        "MaxUnpool",
        dy,
        indices,
        kernel_shape=window.kernel,
        strides=window.strides,
        pads=[*window.begins, *window.ends],
    )


def max_unpool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y[I[o]] = x[o]: dx[o] = dy[I[o]]."""
    dy, indices = incoming(node, grads), operand(node, 1)
    return (lambda: b.op("Gather", b.op("Reshape", dy, [-1]), indices, axis=0),)


def average_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y[o] = sum of a window / n[o]: dx[i] = sum of dy[o] / n[o] over the windows that see i."""
    dy = incoming(node, grads)
    window = window_of(node)
    return (lambda: _spread(b, b.op("Mul", dy, _reciprocal_counts(node, window)), window),)


def _reciprocal_counts(node: ir.Node, window: Window) -> Array | float:
    """Return 1 / n[o]: a number where all are equal, else of the shape of `positions`."""
    befores = afters = (0,) * len(window.kernel)
    if int_attribute(node, "count_include_pad") != 0:
        pads = integers_attribute(node, "pads")
        befores, afters = window.begins, pads[len(befores) :] if pads else window.ends
    counts = np.ones(())
    for axis, margin in enumerate(zip(befores, afters, strict=True)):
        counts = counts[..., None] * window.counts(axis, *margin)
    if (counts == counts.flat[0]).all():
        return 1 / float(counts.flat[0])
    return (1 / counts).astype(operand(node, 0).dtype.numpy())  # type: ignore[union-attr]  # typed graph


def lp_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = (sum |x|^p)^(1/p): dx = sign(x) |x|^(p-1) * sum of dy y^(1-p) over its windows."""
    dy = incoming(node, grads)
    x, y, power = operand(node, 0), node.outputs[0], int_attribute(node, "p", 2)
    window = window_of(node)
    return (
        lambda: _norm_gradient(b, x, _spread(b, _norm_weights(b, dy, y, power), window), power),
    )


def global_lp_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = (sum |x|^p)^(1/p) over all positions: dx = sign(x) |x|^(p-1) * dy y^(1-p)."""
    dy = incoming(node, grads)
    x, y, power = operand(node, 0), node.outputs[0], int_attribute(node, "p", 2)
    return (lambda: _norm_gradient(b, x, _norm_weights(b, dy, y, power), power),)


def _norm_weights(b: Editor, dy: ir.Value, y: ir.Value, power: int) -> ir.Value:
    """Return dy y^(1-p), and 0 where y is 0."""
    if power == 1:
        return dy
    zero = b.op("Cast", b.op("Equal", y, 0.0), to=y.dtype)
    base = b.op("Add", y, zero)
    rest = b.op("Div", dy, base if power == 2 else b.op("Pow", base, float(power - 1)))
    return b.op("Mul", rest, b.op("Sub", 1.0, zero)) if power > 1 else rest


def _norm_gradient(b: Editor, x: ir.Value, weights: ir.Value, power: int) -> ir.Value:
    """Return sign(x) |x|^(p-1) * weights."""
    if power == 1:
        return b.op("Mul", b.op("Sign", x), weights)
    slope = x if power == 2 else b.op("Mul", x, b.op("Pow", b.op("Abs", x), float(power - 2)))
    return b.op("Mul", slope, weights)


def global_average_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = mean over all L positions: dx = dy / L everywhere."""
    dy = incoming(node, grads)
    shape = shape_of(operand(node, 0))
    return (lambda: b.op("Expand", b.op("Mul", dy, 1 / prod(shape[2:])), np.array(shape)),)


def global_max_pool(b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]) -> Gradients:
    """y = max over all positions: dx[argmax] = dy; the first maximum counts."""
    dy = incoming(node, grads)
    x = operand(node, 0)
    batch, channels, *sizes = shape_of(x)

    def make() -> ir.Value:
        flat = (batch, channels, prod(sizes))
        index = b.op("ArgMax", reshape(b, x, flat), axis=2, keepdims=1)
        zeros, what = reshape(b, b.zeros(x), flat), reshape(b, dy, (batch, channels, 1))
        return reshape(b, b.op("ScatterElements", zeros, index, what, axis=2), shape_of(x))

    return (make,)


def _spread(b: Editor, dy: ir.Value, window: Window) -> ir.Value:
    """Return, for each element of the image, the sum of `dy` over the windows that see it.

    Tiles repeat their value; windows at every position are summed by windows of the same size;
    others are a product with a matrix of zeros and ones for each axis.
    """
    if _is_repeatable(window):
        return _repeated(b, dy, window)
    margins = _mirrored(window)
    if margins is not None:
        mean = b.op(
            "AveragePool",
            dy,
            kernel_shape=window.kernel,
            dilations=window.dilations,
            pads=margins,
            count_include_pad=1,
        )
        return b.op("Mul", mean, float(window.taps))
    for axis in range(len(window.kernel)):
        dy = apply_along(b, dy, axis + 2, window.matrix(axis).T)
    return dy


def _is_repeatable(window: Window) -> bool:
    """Tell whether windows lie side by side, so that each element has one; some may have none."""
    return window.tiles and min(window.rests) >= 0


def _repeated(b: Editor, values: ir.Value, window: Window) -> ir.Value:
    """Give every element of the image the value of its window, and 0 to those without one."""
    repeated = b.op(
        "Resize",
        values,
        None,
        np.array([1, 1, *window.kernel], np.float32),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    return surround(b, repeated, {axis: (0, r) for axis, r in enumerate(window.rests, 2)})


def _mirrored(window: Window) -> list[int] | None:
    """Return the pads with which windows on dy see, for each element, the windows that see it.

    None if the windows of the node are not at every position.
    """
    if any(stride != 1 for stride in window.strides):
        return None
    before = [e - 1 - begin for e, begin in zip(window.extents, window.begins, strict=True)]
    after = [
        size - positions + extent - 1 - begin
        for size, positions, extent, begin in zip(
            window.image, window.positions, window.extents, before, strict=True
        )
    ]
    margins = [*before, *after]
    fits = all(0 <= margin < k for margin, k in zip(margins, window.kernel * 2, strict=True))
    return margins if fits else None
