"""The sizes of a convolution, of which its result and both of its gradients are made.

    y[n, o, p] = sum over c and taps t of x[n, c, at(p, t)] * w[o, c, t]

with x an image [N, C, *image], y a signal [N, O, *positions] and w filters [O, C / G, *kernel], for
one to three axes behind the channels. What is asked for is named by what two of them give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import onnx_ir as ir

from sambac.graph.editor import shape_of

from .formulations import Sizes, product
from .rules import dtype_of
from .windows import Window

FIELDS = ("image", "signal", "kernel", "strides", "dilations", "pads", "group")
_MAX_COLUMNS = 2**26
"""Columns of more elements (256 MiB) are not made in one piece."""

_BLOCK, _LARGE_BLOCK = 8, 16
"""The blocks of channels that hosts have kernels for."""


@dataclass(frozen=True)
class Convolution:
    """Sizes of a convolution, and the type of its numbers."""

    batch: int
    channels: int
    maps: int
    window: Window
    group: int
    dtype: ir.DataType

    @property
    def image(self) -> tuple[int, ...]:
        """The shape of x."""
        return (self.batch, self.channels, *self.window.image)

    @property
    def signal(self) -> tuple[int, ...]:
        """The shape of y."""
        return (self.batch, self.maps, *self.window.positions)

    @property
    def filters(self) -> tuple[int, ...]:
        """The shape of w."""
        return (self.maps, self.channels // self.group, *self.window.kernel)

    @property
    def seen(self) -> int:
        """The elements that one tap of all windows sees."""
        return self.batch * self.channels * self.window.count

    @property
    def columns(self) -> int:
        """The elements that all taps see."""
        return self.seen * self.window.taps

    @property
    def size(self) -> int:
        """The elements of w."""
        return prod(self.filters)

    @property
    def product(self) -> float:
        """The cost of multiplying, in one product or a few."""
        return product(self.size * self.batch * self.window.count)

    @property
    def at_once(self) -> bool:
        """Whether all groups are one, and there is memory for the columns."""
        return self.group == 1 and self.columns <= _MAX_COLUMNS

    @property
    def depthwise(self) -> bool:
        """Whether each channel has one filter of its own."""
        return self.group == self.channels == self.maps

    @property
    def sizes(self) -> Sizes:
        """What makes these sizes again, without what is as usual."""
        window, ones = self.window, (1,) * len(self.window.kernel)
        usual = {
            "strides": (window.strides, ones),
            "dilations": (window.dilations, ones),
            "pads": (window.begins, (0,) * len(ones)),
            "group": ((self.group,), (1,)),
        }
        return {
            "image": self.image,
            "signal": self.signal,
            "kernel": window.kernel,
            **{name: have for name, (have, default) in usual.items() if have != default},
        }


def convolution_of(sizes: Sizes, dtype: ir.DataType) -> Convolution:
    """Return the convolution with these sizes; raise `ValueError` where they do not go together."""
    image, signal, kernel = (sizes.get(name, ()) for name in FIELDS[:3])
    axes = len(kernel)
    ones = (1,) * axes
    strides, dilations, pads = (
        sizes.get(name, usual)
        for name, usual in (("strides", ones), ("dilations", ones), ("pads", (0,) * axes))
    )
    (group, *more) = sizes.get("group", (1,))
    lengths = {len(image) - 2, len(signal) - 2, len(strides), len(dilations), len(pads)}
    if not axes or lengths != {axes} or more or image[0] != signal[0]:
        raise ValueError("its sizes are not those of an image, its signal and a kernel")
    if 0 in (*image, *signal, *kernel, *strides, *dilations, group):
        raise ValueError("a size is 0")
    if image[1] % group or signal[1] % group:
        raise ValueError("its channels are not divided by its groups")
    window = Window(kernel, strides, dilations, pads, image[2:], signal[2:])
    return Convolution(image[0], image[1], signal[1], window, group, dtype)


def sizes_between(image: ir.Value, signal: ir.Value, window: Window, group: int) -> Convolution:
    """Return the sizes of the convolution that makes `signal` of `image`."""
    batch, channels = shape_of(image)[:2]
    maps = shape_of(signal)[1]
    return Convolution(batch, channels, maps, window, group, dtype_of(image))


def reads_blocks(of: Convolution) -> bool:
    """Tell whether all hosts with blocks of channels have kernels for the convolution in them."""
    few = of.group == 1 and of.channels < _BLOCK
    images = of.dtype == ir.DataType.FLOAT and len(of.window.kernel) == 2
    apart = of.group == 1 or of.depthwise
    whole = of.maps % _LARGE_BLOCK == 0 and (few or of.channels % _LARGE_BLOCK == 0)
    return images and apart and whole


def in_blocks(of: Convolution) -> bool:
    """Tell whether hosts may have kernels for the convolution, or one from `signal` to `image`.

    They are for images of float32, in blocks of channels (`variants/blocked.py`).
    """
    whole = of.channels % _BLOCK == 0 and of.maps % _BLOCK == 0
    return of.dtype == ir.DataType.FLOAT and len(of.window.kernel) == 2 and whole


def in_whole_blocks(of: Convolution) -> Convolution:
    """Return the convolution with channels and maps of zeros added, up to whole blocks.

    Few channels stay as they are: a kernel reads them one by one.
    """
    channels = of.channels if of.channels < _BLOCK else _up_to_blocks(of.channels)
    return replace(of, channels=channels, maps=_up_to_blocks(of.maps))


def _up_to_blocks(count: int) -> int:
    return -(-count // _LARGE_BLOCK) * _LARGE_BLOCK


def gains_blocks(of: Convolution) -> bool:
    """Tell whether the convolution has whole blocks with zeros added alone, and fewer than data."""
    whole = in_whole_blocks(of)
    rest = whole.channels * whole.maps - of.channels * of.maps
    return of.group == 1 and whole != of and reads_blocks(whole) and rest < of.channels * of.maps
