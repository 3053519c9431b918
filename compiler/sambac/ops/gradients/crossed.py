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
from dataclasses import dataclass

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .columns import rows_of_channels
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


@dataclass(frozen=True)
class _CrossedAxis:
    """An axis of the convolution: what lies there, and the filters that step over it.

    `kept` results are wanted; behind them there are more where no window sees the last places.
    """

    places: int
    kernel: int
    kept: int
    stride: int = 1
    dilation: int = 1
    begin: int = 0

    @property
    def end(self) -> int:
        """How much padding the last step needs behind what lies there."""
        seen = (self.kernel - 1) * self.dilation + (self.kept - 1) * self.stride + 1
        return max(0, seen - self.places - self.begin)

    def of_channels(self, channels: int) -> _CrossedAxis:
        """Return the axis with so many channels at each place; its stride is one."""
        return _CrossedAxis(
            self.places * channels,
            self.kernel,
            self.kept * channels,
            dilation=self.dilation * channels,
            begin=self.begin * channels,
        )


def _crossed(
    b: Editor, window: Window, begins: Sequence[int], image: ir.Value, filters: ir.Value
) -> ir.Value:
    """Return [O, *kernel, C] of `image` [N, C, *], padded by `begins`, and `filters` [N, O, *]."""
    (batch, channels, *places), (_, maps, *sizes) = shape_of(image), shape_of(filters)
    spatial = range(2, 2 + len(sizes))
    turned = (window.kernel, window.dilations, window.strides, begins)
    axes = [_CrossedAxis(*each) for each in zip(places, sizes, *turned, strict=True)]
    if axes[-1].stride == 1:
        axes[-1] = axes[-1].of_channels(channels)
    else:
        axes.append(_CrossedAxis(channels, 1, channels))
    axes = [_CrossedAxis(1, 1, 1)] * (_VOLUME - len(axes)) + axes
    kernel = [axis.kernel for axis in axes]
    last = transpose(b, image, [0, *spatial, 1])
    # Places are one axis: else a transposition of them in front and this one would become one,
    # which moves single elements where the two move rows.
    first = rows_of_channels(b, filters)
    made = b.op(
        "Conv",
        reshape(b, last, (1, batch, *(axis.places for axis in axes))),
        reshape(b, first, (maps, batch, *kernel)),
        kernel_shape=kernel,
        strides=[axis.stride for axis in axes],
        dilations=[axis.dilation for axis in axes],
        pads=[*(axis.begin for axis in axes), *(axis.end for axis in axes)],
    )
    return cut(b, made, {number: (0, axis.kept) for number, axis in enumerate(axes, 2)})
