"""The gradient of a convolution's filters, in the form that suits its sizes.

    dW[o, c, t] = sum over images n and positions p of signal[n, o, p] * image[n, c, at(p, t)]

is a matrix product of the signal with the image's columns, which hold for each tap and position
the element seen there. Copying the columns is what the forms differ in; it is the dearer the
shorter the runs of elements are that can be copied in one piece.
"""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .rules import column_sums, reshape, swap_last, transpose
from .windows import Window, pad

_MAX_COLUMNS = 2**26
"""Columns of more elements (256 MiB) are not made in one piece."""

_BLOCK = 8
"""The smallest block of channels that hosts have kernels for."""

_FEW_CHANNELS = 4
"""Up to so many channels are too short a run, and a whole row of the image is a longer one."""


def filter_gradient(
    b: Editor, image: ir.Value, signal: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return dW [O, C / group, *kernel] from image [N, C, *] and signal [N, O, *positions]."""
    batch, channels = shape_of(image)[:2]
    maps = shape_of(signal)[1]
    columns = batch * channels * window.taps * window.count
    if group == channels == maps and in_blocks(image, channels):
        made = _swapped(b, image, signal, window)
    elif group == channels == maps:
        made = _depthwise(b, image, signal, window)
    elif group > 1 or columns > _MAX_COLUMNS:
        made = _tap_by_tap(b, image, signal, window, group)
    elif window.is_pointwise:
        made = _pointwise(b, image, signal)
    elif channels <= _FEW_CHANNELS:
        made = _all_taps(b, image, signal, window)
    elif batch >= channels:
        made = _batch_innermost(b, image, signal, window)
    else:
        made = _channel_innermost(b, image, signal, window)
    return reshape(b, made, (maps, channels // group, *window.kernel))


def in_blocks(image: ir.Value, channels: int) -> bool:
    """Tell whether hosts may have kernels for convolutions of `image` into so many channels.

    They are for images of float32, in blocks of channels (`variants/blocked.py`).
    """
    shape = shape_of(image)
    whole = shape[1] % _BLOCK == 0 and channels % _BLOCK == 0
    return image.dtype == ir.DataType.FLOAT and len(shape) == 4 and whole


def _pointwise(b: Editor, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C]: signal [O, N * L] times image [C, N * L]^T; there are no columns."""
    return b.op("Gemm", _rows(b, signal), _rows(b, image), transB=1)


def _batch_innermost(b: Editor, image: ir.Value, signal: ir.Value, window: Window) -> ir.Value:
    """Return [O, C * taps]: columns [C * taps, L * N], copied in runs of N, times [L * N, O]."""
    batch, channels = shape_of(image)[:2]
    moved = pad(b, transpose(b, image, [*range(1, 2 + len(window.kernel)), 0]), window, 1)
    flat = reshape(b, moved, (channels, prod(window.padded), batch))
    picked = b.op("Gather", flat, window.index().reshape(-1), axis=1)
    columns = reshape(b, picked, (channels * window.taps, window.count * batch))
    right = transpose(b, _flat(b, signal), [2, 0, 1])
    right = reshape(b, right, (window.count * batch, shape_of(signal)[1]))
    return swap_last(b, b.op("MatMul", columns, right))


def _channel_innermost(b: Editor, image: ir.Value, signal: ir.Value, window: Window) -> ir.Value:
    """Return [O, C, taps]: [O, N * L] times columns [N * L, taps * C], copied in runs of C."""
    batch, channels = shape_of(image)[:2]
    maps = shape_of(signal)[1]
    moved = pad(b, transpose(b, image, [0, *range(2, 2 + len(window.kernel)), 1]), window, 1)
    flat = reshape(b, moved, (batch, prod(window.padded), channels))
    picked = b.op("Gather", flat, window.index().T.reshape(-1), axis=1)
    columns = reshape(b, picked, (batch * window.count, window.taps * channels))
    product = b.op("MatMul", _rows(b, signal), columns)
    product = reshape(b, product, (maps, window.taps, channels))
    return swap_last(b, product)


def _all_taps(b: Editor, image: ir.Value, signal: ir.Value, window: Window) -> ir.Value:
    """Return [O, C, taps]: for each image columns [taps * C, L], made of slices, times [L, O]."""
    channels, maps = shape_of(image)[1], shape_of(signal)[1]
    columns = b.op("Concat", *(_flat(b, tap) for tap in _taps(b, image, window)), axis=1)
    products = b.op("MatMul", columns, swap_last(b, _flat(b, signal)))
    apart = reshape(b, _sum_of_images(b, products), (window.taps, channels, maps))
    return transpose(b, apart, [2, 1, 0])


def _tap_by_tap(
    b: Editor, image: ir.Value, signal: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return [G, O / G, C / G, taps]: for each tap and image [C / G, L] times [L, O / G].

    Needs memory for the columns of one tap alone.
    """
    batch, channels = shape_of(image)[:2]
    maps = shape_of(signal)[1]
    inner, outer = (group, channels // group), (group, maps // group)
    right = swap_last(b, reshape(b, signal, (batch, *outer, window.count)))
    parts = []
    for tap in _taps(b, image, window):
        left = reshape(b, tap, (batch, *inner, window.count))
        product = _sum_of_images(b, b.op("MatMul", left, right))
        parts.append(reshape(b, product, (1, *inner, maps // group)))
    return transpose(b, b.op("Concat", *parts, axis=0), [1, 3, 2, 0])


def _swapped(b: Editor, image: ir.Value, signal: ir.Value, window: Window) -> ir.Value:
    """Return [C, taps]: the images filtered by their signals, and summed.

    Each channel of each image is convolved with its signal, as large as that is, and taps change
    roles with positions, strides with dilations. As one convolution with N * C channels it is slow,
    but not where channels are worked on in blocks.
    """
    batch, channels = shape_of(image)[:2]
    made = b.op(
        "Conv",
        reshape(b, image, (1, batch * channels, *window.image)),
        reshape(b, signal, (batch * channels, 1, *window.positions)),
        kernel_shape=window.positions,
        strides=window.dilations,
        dilations=window.strides,
        pads=[*window.begins, *window.ends],
        group=batch * channels,
    )
    if shape_of(made)[2:] != window.kernel:  # of elements that no window sees
        made = b.op("Slice", made, [0, 0], window.kernel, [2, 3])
    return column_sums(b, reshape(b, made, (batch, channels * window.taps)))


def _depthwise(b: Editor, image: ir.Value, signal: ir.Value, window: Window) -> ir.Value:
    """Return [C, taps]: for each tap the sum of products, element by element."""
    batch, channels = shape_of(image)[:2]
    rows = (batch * channels, window.count)
    right = reshape(b, signal, rows)
    sums = [
        b.op("ReduceSum", b.op("Mul", reshape(b, tap, rows), right), [1], keepdims=1)
        for tap in _taps(b, image, window)
    ]
    images = reshape(b, b.op("Concat", *sums, axis=1), (batch, channels * window.taps))
    return column_sums(b, images)


def _taps(b: Editor, image: ir.Value, window: Window) -> list[ir.Value]:
    """Return, for each tap, [N, C, *positions]: the elements it sees."""
    if window.is_pointwise:
        return [image]
    padded = pad(b, image, window, 2)
    axes = list(range(2, 2 + len(window.kernel)))
    slices = []
    for offset in window.offsets():
        sizes = zip(offset, window.positions, window.strides, strict=True)
        stops = [start + (count - 1) * stride + 1 for start, count, stride in sizes]
        slices.append(b.op("Slice", padded, offset, stops, axes, window.strides))
    return slices


def _flat(b: Editor, image: ir.Value) -> ir.Value:
    """Return [N, C, L] from [N, C, *]."""
    batch, channels, *sizes = shape_of(image)
    return reshape(b, image, (batch, channels, prod(sizes)))


def _rows(b: Editor, image: ir.Value) -> ir.Value:
    """Return [C, N * L] from [N, C, *]."""
    batch, channels, *sizes = shape_of(image)
    rows = transpose(b, _flat(b, image), [1, 0, 2])
    return reshape(b, rows, (channels, batch * prod(sizes)))


def _sum_of_images(b: Editor, values: ir.Value) -> ir.Value:
    """Return the sum of `values` [N, *] over N, flat."""
    batch, *sizes = shape_of(values)
    return column_sums(b, reshape(b, values, (batch, prod(sizes))))
