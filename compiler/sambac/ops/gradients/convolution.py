"""Gradients of convolutions, of one to three dimensions.

A convolution y[o] = sum over taps t and channels of W[t] * x[at(o, t)] has three: the data gradient
spreads dy over the taps, the filter gradient is a product of dy with what each tap sees
(`filters.py`), the bias gradient is a sum. A transposed
convolution is a data gradient itself, so that image and result change roles.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute
from sambac.ops.family import InputGradient

from .filters import filter_gradient, in_blocks
from .rules import channel_sums, incoming, operand, reshape, swap_last, transpose
from .windows import Window, window_of

_FEW_COLUMNS = 2**22
"""Up to so many elements (16 MiB) the columns of a gradient are made in one piece."""

_FEW_POSITIONS = 16
"""Images of up to so many windows are multiplied with filters all at once."""


def conv(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x * W + B: dx = dy spread by W over the windows, dW = dy columns(x)^T, dB = sum dy."""
    x, weight, dy = operand(node, 0), operand(node, 1), incoming(node, grads)
    window, group = window_of(node), int_attribute(node, "group", 1)
    return (
        lambda: _spread(b, dy, weight, window, group),
        lambda: filter_gradient(b, x, dy, window, group),
        lambda: channel_sums(b, dy),
    )[: len(node.inputs)]


def conv_transpose(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x spread by W + B: dx = dy * W (a convolution), dW = x columns(dy)^T, dB = sum dy."""
    x, weight, dy = operand(node, 0), operand(node, 1), incoming(node, grads)
    window, group = window_of(node, transposed=True), int_attribute(node, "group", 1)
    return (
        lambda: _gathered(b, dy, weight, window, group),
        lambda: filter_gradient(b, dy, x, window, group),
        lambda: channel_sums(b, dy),
    )[: len(node.inputs)]


def _gathered(b: Editor, dy: ir.Value, weight: ir.Value, window: Window, group: int) -> ir.Value:
    """Return the convolution of `dy` with the filters of the node."""
    return b.op(
        "Conv",
        dy,
        weight,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begins, *window.ends],
        group=group,
    )


def _spread(b: Editor, dy: ir.Value, weight: ir.Value, window: Window, group: int) -> ir.Value:
    """Return dx [N, C, *image] from dy [N, O, *positions] and W [O, C / group, *kernel].

    ConvTranspose works image by image, which keeps its memory small and two threads idle where
    images are small: there the columns of all images are one product. But hosts have a faster
    convolution for images of whole blocks of channels, and with a stride of one ConvTranspose is
    one (`variants/blocked.py`).
    """
    batch, channels = shape_of(dy)[0], shape_of(weight)[1]
    columns = batch * channels * window.taps * window.count
    if window.is_pointwise and group == 1:
        return b.op("Conv", dy, transpose(b, weight, [1, 0, *range(2, 2 + len(window.kernel))]))
    whole = group > 1 or columns > _FEW_COLUMNS or not _has_col2im(window)
    if whole or (in_blocks(dy, channels) and set(window.strides) == {1}):
        return _transposed(b, dy, weight, window, group)
    return _from_columns(b, dy, weight, window)


def _from_columns(b: Editor, dy: ir.Value, weight: ir.Value, window: Window) -> ir.Value:
    """Return dx: W^T dy are the columns of the gradient, Col2Im adds them where they overlap."""
    batch, maps = shape_of(dy)[:2]
    channels = shape_of(weight)[1]
    filters = swap_last(b, reshape(b, weight, (maps, channels * window.taps)))
    columns = _product_with_images(b, filters, reshape(b, dy, (batch, maps, window.count)))
    # With a height of one, signals take the path of images.
    one = (1,) if len(window.kernel) == 1 else ()
    none = (0,) * len(one)
    summed = b.op(
        "Col2Im",
        columns,
        [*one, *window.image],
        [*one, *window.kernel],
        strides=[*one, *window.strides],
        dilations=[*one, *window.dilations],
        pads=[*none, *window.begins, *none, *window.ends],
    )
    return reshape(b, summed, (batch, channels, *window.image))


def _product_with_images(b: Editor, left: ir.Value, images: ir.Value) -> ir.Value:
    """Return [N, R, L]: left [R, O] times each of images [N, O, L].

    Small images are one product, as each of their own would read `left` for a few columns.
    """
    batch, maps, count = shape_of(images)
    if batch == 1 or count > _FEW_POSITIONS:
        return b.op("MatMul", left, images)
    columns = reshape(b, transpose(b, images, [1, 0, 2]), (maps, batch * count))
    product = b.op("MatMul", left, columns)
    return transpose(b, reshape(b, product, (shape_of(left)[0], batch, count)), [1, 0, 2])


def _has_col2im(window: Window) -> bool:
    """Whether Col2Im can be trusted: onnxruntime's is wrong for volumes with dilation."""
    return len(window.kernel) <= 2 or all(step == 1 for step in window.dilations)


def _transposed(b: Editor, dy: ir.Value, weight: ir.Value, window: Window, group: int) -> ir.Value:
    """Return dx by ConvTranspose, which makes the columns of one image at a time."""
    return b.op(
        "ConvTranspose",
        dy,
        weight,
        kernel_shape=window.kernel,
        strides=window.strides,
        dilations=window.dilations,
        pads=[*window.begins, *window.ends],
        output_padding=[max(0, rest) for rest in window.rests],
        group=group,
    )
