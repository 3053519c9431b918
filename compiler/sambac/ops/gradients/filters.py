"""The gradient of a convolution's filters, in the form that suits its sizes.

    dW[o, c, t] = sum over images n and positions p of signal[n, o, p] * image[n, c, at(p, t)]

is a matrix product of the signal with the image's columns, which hold for each tap and position
the element seen there. Copying the columns is what the forms differ in; it is the dearer the
shorter the runs of elements are that can be copied in one piece. `FORMS` has them all.
"""

from __future__ import annotations

from math import ceil, prod

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .columns import channels_last, columns_by_image, flat_positions, rows_of_channels
from .convolution_sizes import FIELDS, Convolution, convolution_of, in_blocks, sizes_between
from .crossed import filtered_by_images, filtered_by_signals, fits_images, fits_signals
from .formulations import ChoicePoint, Formulation, copying
from .rules import column_sums, reshape, swap_last, transpose
from .windows import Window, pad

_PIECE = 2**19
"""Columns are made in pieces of about so many elements (2 MiB), which stay in a cache."""

_MOVED = 0.5  # putting an element of an image elsewhere
_STRIDED = 1.0  # copying: for each element that has no neighbour beside it
_PACKED = 0.1  # for each element of the columns that a convolution makes for itself
_ONE_THREAD = 1.5  # what is made by one thread counts more than what threads divide
_PAIR = 0.5  # multiplying element by element, and summing up
_ROWS = 8  # products work on so many rows at once
_SUMMED = 0.3  # for each element of the products of single images
_CALL = 2000  # for each operator


def filter_gradient(
    b: Editor, image: ir.Value, signal: ir.Value, window: Window, group: int
) -> ir.Value:
    """Return dW [O, C / group, *kernel] from image [N, C, *] and signal [N, O, *positions]."""
    asked = sizes_between(image, signal, window, group)
    return FILTER_GRADIENT.solve(b, asked, image, signal)


def _pointwise(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C]: signal [O, N * L] times image [C, N * L]^T; there are no columns."""
    return b.op("Gemm", rows_of_channels(b, signal), rows_of_channels(b, image), transB=1)


def _batch_innermost(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C * taps]: columns [C * taps, L * N], copied in runs of N, times [L * N, O]."""
    right = transpose(b, flat_positions(b, signal), [2, 0, 1])
    right = reshape(b, right, (of.window.count * of.batch, of.maps))
    return swap_last(b, b.op("MatMul", columns_by_image(b, of, image), right))


def _batch_innermost_swapped(
    b: Editor, of: Convolution, image: ir.Value, signal: ir.Value
) -> ir.Value:
    """Return [O, C * taps]: [O, L * N] times columns [C * taps, L * N]^T, copied in runs of N.

    Nothing moves the result, which is larger than the columns where images are small.
    """
    left = transpose(b, flat_positions(b, signal), [1, 2, 0])
    left = reshape(b, left, (of.maps, of.window.count * of.batch))
    return b.op("Gemm", left, columns_by_image(b, of, image), transB=1)


def _channel_innermost(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C, taps]: [O, N * L] times columns [N * L, taps * C], copied in runs of C.

    They are made for a few taps at a time, so that a product finds its columns in a cache.
    """
    window, channels = of.window, of.channels
    flat = channels_last(b, of, image)
    left, index, products = rows_of_channels(b, signal), window.index(), []
    step = _taps_at_once(of)
    for start in range(0, window.taps, step):
        some = index[start : start + step]
        picked = b.op("Gather", flat, some.T.reshape(-1), axis=1)
        columns = reshape(b, picked, (of.batch * window.count, len(some) * channels))
        products.append(b.op("MatMul", left, columns))
    whole = b.op("Concat", *products, axis=1) if len(products) > 1 else products[0]
    return swap_last(b, reshape(b, whole, (of.maps, window.taps, channels)))


def _taps_at_once(of: Convolution) -> int:
    """Return the columns of how many taps are a piece; all pieces are about equal."""
    pieces = min(of.window.taps, max(1, ceil(of.columns / _PIECE)))
    return ceil(of.window.taps / pieces)


def _all_taps(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C, taps]: for each image columns [taps * C, L], made of slices, times [L, O]."""
    taps = [flat_positions(b, tap) for tap in _taps(b, image, of.window)]
    columns = b.op("Concat", *taps, axis=1) if len(taps) > 1 else taps[0]
    products = b.op("MatMul", columns, swap_last(b, flat_positions(b, signal)))
    apart = reshape(b, _sum_of_images(b, products), (of.window.taps, of.channels, of.maps))
    return transpose(b, apart, [2, 1, 0])


def _tap_by_tap(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [G, O / G, C / G, taps]: for each tap and image [C / G, L] times [L, O / G].

    Needs memory for the columns of one tap alone.
    """
    batch, count, group = of.batch, of.window.count, of.group
    inner, outer = (group, of.channels // group), (group, of.maps // group)
    right = swap_last(b, reshape(b, signal, (batch, *outer, count)))
    parts = []
    for tap in _taps(b, image, of.window):
        left = reshape(b, tap, (batch, *inner, count))
        total = _sum_of_images(b, b.op("MatMul", left, right))
        parts.append(reshape(b, total, (1, *inner, of.maps // group)))
    return transpose(b, b.op("Concat", *parts, axis=0), [1, 3, 2, 0])


def _swapped(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [C, taps]: the images filtered by their signals, and summed.

    Each channel of each image is convolved with its signal, as large as that is, and taps change
    roles with positions, strides with dilations. As one convolution with N * C channels it is slow,
    but not where channels are worked on in blocks.
    """
    batch, channels, window = of.batch, of.channels, of.window
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


def _depthwise(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [C, taps]: for each tap the sum of products, element by element."""
    batch, channels, window = of.batch, of.channels, of.window
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


def _sum_of_images(b: Editor, values: ir.Value) -> ir.Value:
    """Return the sum of `values` [N, *] over N, flat."""
    batch, *sizes = shape_of(values)
    return column_sums(b, reshape(b, values, (batch, prod(sizes))))


def _sliced(of: Convolution) -> float:
    """Return the cost of copying what each tap sees from images as they lie."""
    if of.window.is_pointwise:
        return 0
    apart = _STRIDED if of.window.strides[-1] > 1 else 0
    copied = copying(of.columns, of.window.positions[-1], of.seen)
    return _ONE_THREAD * copied + apart * of.columns


def _moved(of: Convolution) -> float:
    """Return the cost of putting axes of the image into another order, and padding it."""
    return _MOVED * of.batch * of.channels * prod(of.window.image)


def _of_each_image(of: Convolution, products: int) -> float:
    """Return what so many products for each image cost besides multiplying."""
    return of.batch * (_SUMMED * of.size + _CALL / 2 * products)


def _cost_of_rows(of: Convolution) -> float:
    elements = of.batch * (of.channels + of.maps) * of.window.count
    return of.product + copying(elements, of.window.count, 0) + 2 * _CALL


def _cost_of_taps(of: Convolution) -> float:
    rows = of.channels // of.group
    padded = of.product * _ROWS * ceil(rows / _ROWS) / rows
    return padded + _sliced(of) + _of_each_image(of, of.window.taps * of.group)


def _cost_of_images(of: Convolution) -> float:
    signal = _MOVED * of.batch * of.maps * of.window.count
    return of.product + _moved(of) + signal + copying(of.columns, of.batch)


def _cost_of_channels(of: Convolution) -> float:
    step = _taps_at_once(of)
    calls = _CALL * ceil(of.window.taps / step)
    columns = copying(of.columns, of.channels, of.seen * step)
    signal = copying(of.batch * of.maps * of.window.count, of.window.count, 0)
    return of.product + _moved(of) + columns + signal + _SUMMED * of.size + calls


def _cost_of_crossed(of: Convolution, filtered: int, filters: int) -> float:
    """Return the cost of filtering so many channels by so many others."""
    window = of.window
    places = window.image if filtered == of.channels else window.positions
    others = window.positions if filtered == of.channels else window.image
    moved = _MOVED * of.batch * filtered * prod(places)
    first = copying(of.batch * filters * prod(others), prod(others), 0)
    columns = of.batch * filtered * window.taps * prod(others)
    run = window.kernel[-1] * filtered if window.dilations[-1] == 1 else filtered
    packed = columns * (_PACKED + 1 / run)
    return of.product + moved + first + packed + _SUMMED * of.size + 3 * _CALL


def _cost_of_all_taps(of: Convolution) -> float:
    columns = 0.0 if of.window.is_pointwise else copying(of.columns, of.window.count)
    return of.product + _sliced(of) + columns + _of_each_image(of, 1)


FORMS: tuple[Formulation[Convolution], ...] = (
    Formulation(
        "no columns",
        lambda of: of.group == 1 and of.window.is_pointwise,
        _cost_of_rows,
        _pointwise,
    ),
    Formulation(
        "images filtered by signals",
        lambda of: of.depthwise and in_blocks(of),
        lambda of: _PAIR * of.columns / 4,
        _swapped,
    ),
    Formulation(
        "element by element",
        lambda of: of.depthwise,
        lambda of: _PAIR * of.columns,
        _depthwise,
    ),
    Formulation(
        "runs of images",
        lambda of: of.at_once,
        lambda of: _cost_of_images(of) + 0.5 * of.size,
        _batch_innermost,
    ),
    Formulation(
        "runs of images, swapped",
        lambda of: of.at_once,
        lambda of: _cost_of_images(of) + 0.1 * of.columns,
        _batch_innermost_swapped,
    ),
    Formulation("runs of channels", lambda of: of.at_once, _cost_of_channels, _channel_innermost),
    Formulation(
        "channels filtered by signals",
        fits_signals,
        lambda of: _cost_of_crossed(of, of.channels, of.maps),
        filtered_by_signals,
    ),
    Formulation(
        "signals filtered by channels",
        fits_images,
        lambda of: _cost_of_crossed(of, of.maps, of.channels),
        filtered_by_images,
    ),
    Formulation(
        "all taps of an image",
        lambda of: of.at_once,
        _cost_of_all_taps,
        _all_taps,
    ),
    Formulation("tap by tap", lambda of: True, _cost_of_taps, _tap_by_tap),
)
"""All of them; the last is always right."""

FILTER_GRADIENT = ChoicePoint(
    name="filter gradient",
    forms=FORMS,
    fields=FIELDS,
    pose=convolution_of,
    operands=lambda of: (of.image, of.signal),
    result=lambda of: of.filters,
)
