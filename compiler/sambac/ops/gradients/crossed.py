"""The gradient of a convolution's filters as a convolution itself, in which sizes change roles.

    dW[o, c, t] = sum over images n and positions p of signal[n, o, p] * image[n, c, at(p, t)]

is one image whose channels are the images n, filtered by the signal: filters as large as the signal
slide over it by a tap at a time; strides and dilations are exchanged. What was channels lies side
by side behind each place. Columns are runs of them, which the operator makes for itself, a piece at
a time that fits a cache, and by all threads.

It is a convolution of volumes, for there are none in blocks of channels: with filters as large as
images those take up to twice as long.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .convolution_sizes import Convolution
from .rules import cut, reshape, swap_last, transpose
from .windows import Window


_VOLUME = 3  # axes of a volume


def fits_signals(of: Convolution) -> bool:
    """Whether `filtered_by_signals` is right."""
    one = of.window.dilations[-1] == 1
    return of.at_once and of.dtype == ir.DataType.FLOAT and (one or len(of.window.kernel) < _VOLUME)


def fits_images(of: Convolution) -> bool:
    """Whether `filtered_by_images` is right."""
    return fits_signals(of) and set(of.window.strides) == {1} and min(_mirrored(of.window)) >= 0


def filtered_by_signals(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C, taps]: the channels of images, filtered by signals."""
    made = _crossed(b, of.window, of.window.begins, image, signal)
    return swap_last(b, reshape(b, made, (of.maps, of.window.taps, of.channels)))


def filtered_by_images(b: Editor, of: Convolution, image: ir.Value, signal: ir.Value) -> ir.Value:
    """Return [O, C, taps]: the channels of signals, filtered by images from the last tap on."""
    made = _crossed(b, of.window, _mirrored(of.window), signal, image)
    taps = reshape(b, made, (of.channels, of.window.taps, of.maps))
    backward = b.op("Gather", taps, list(range(of.window.taps))[::-1], axis=1)
    return transpose(b, backward, [2, 0, 1])


def _mirrored(window: Window) -> list[int]:
    """Return the padding in front of a signal that is filtered by images."""
    return [size - 1 - begin for size, begin in zip(window.extents, window.begins, strict=True)]


def _crossed(
    b: Editor, window: Window, begins: Sequence[int], image: ir.Value, filters: ir.Value
) -> ir.Value:
    """Return [O, *kernel, C] of `image` [N, C, *], padded by `begins`, and `filters` [N, O, *]."""
    (batch, channels), (maps, *sizes) = shape_of(image)[:2], shape_of(filters)[1:]
    rank, taps = len(sizes), window.kernel
    axes = [
        (place, size, step, spread, begin, (size - 1) * spread + (tap - 1) * step + 1 - place - begin)
        for place, size, tap, step, spread, begin in zip(
            shape_of(image)[2:], sizes, taps, window.dilations, window.strides, begins, strict=True
        )
    ]
    if window.dilations[-1] == 1:
        place, size, step, spread, begin, end = axes.pop()
        axes.append((place * channels, size, 1, spread * channels, begin * channels, end * channels))
        taps = (*taps[:-1], taps[-1] * channels)
    else:
        axes.append((channels, 1, 1, 1, 0, 0))
        taps = (*taps, channels)
    flat = [(1, 1, 1, 1, 0, 0)] * (_VOLUME - len(axes))
    places, kernel, strides, dilations, before, after = zip(*flat, *axes, strict=True)
    last = transpose(b, image, [0, *range(2, 2 + rank), 1])
    first = transpose(b, filters, [1, 0, *range(2, 2 + rank)])
    made = b.op(
        "Conv",
        reshape(b, last, (1, batch, *places)),
        reshape(b, first, (maps, batch, *kernel)),
        kernel_shape=kernel,
        strides=strides,
        dilations=dilations,
        pads=[*before, *(max(0, end) for end in after)],
    )
    spans = enumerate(taps, 2 + _VOLUME - len(taps))
    return cut(b, made, {axis: (0, size) for axis, size in spans})
