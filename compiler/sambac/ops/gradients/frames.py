"""Convolutions of volumes as such of images: what a window sees of each frame are channels.

    y[n, o, (f, p)] = sum over taps u of frames, c and taps t
                      of x[n, c, (at(f, u), at(p, t))] * w[o, c, (u, t)]

is a convolution of images [N F, U C, *] with filters [O, U C, *]. Frames are copied whole, once for
each tap that sees them, and hosts have faster kernels for images. Where a tap sees no frame there
are zeros.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .convolution_sizes import Convolution
from .formulations import copying
from .rules import reshape, surround, transpose
from .windows import Window

_VOLUME = 3  # axes of a volume


def fits_frames(of: Convolution) -> bool:
    """Whether there are frames."""
    return len(of.window.kernel) == _VOLUME and of.group == 1


def seen_frames(of: Convolution) -> Convolution:
    """Return the convolution of images that makes the frames of the signal."""
    wide = replace(of, channels=of.channels * of.window.kernel[0])
    return _of_frames(wide, of.window.positions[0])


def spread_frames(of: Convolution) -> Convolution:
    """Return the convolution of images whose data gradient has the frames of the image."""
    wide = replace(of, maps=of.maps * of.window.kernel[0])
    return _of_frames(wide, of.window.image[0])


def cost_of_frames(of: Convolution, frames: int, elements: int) -> float:
    """Return the cost of copying `elements` to frames of so many, and the results back."""
    results = of.batch * (of.channels * prod(of.window.image) + of.maps * of.window.count)
    return copying(elements, frames) + copying(results, frames, 0)


def image_frames(b: Editor, of: Convolution, image: ir.Value) -> ir.Value:
    """Return the frames [N F, U C, *] of x that the windows see."""
    window = of.window
    steps = np.arange(window.positions[0])[:, None] * window.strides[0] - window.begins[0]
    seen = steps + np.arange(window.kernel[0]) * window.dilations[0]
    return _picked(b, image, np.where((seen >= 0) & (seen < window.image[0]), seen, -1))


def signal_frames(b: Editor, of: Convolution, signal: ir.Value) -> ir.Value:
    """Return the frames [N F, U O, *] of y whose windows see those of x."""
    window = of.window
    places = np.arange(window.image[0])[:, None] + window.begins[0]
    steps = places - np.arange(window.kernel[0]) * window.dilations[0]
    found, rest = np.divmod(steps, window.strides[0])
    there = (rest == 0) & (found >= 0) & (found < window.positions[0])
    return _picked(b, signal, np.where(there, found, -1))


def joined(b: Editor, frames: ir.Value, batch: int) -> ir.Value:
    """Return the volumes [N, C, F, *] of frames [N F, C, *]."""
    every, channels, *sizes = shape_of(frames)
    apart = reshape(b, frames, (batch, every // batch, channels, *sizes))
    return transpose(b, apart, [0, 2, 1, 3, 4])


def _of_frames(of: Convolution, frames: int) -> Convolution:
    """Return the convolution of so many frames of each volume, whose windows lie within one."""
    names = ("kernel", "strides", "dilations", "begins", "image", "positions")
    window = Window(*(getattr(of.window, name)[1:] for name in names))
    return replace(of, batch=of.batch * frames, window=window)


def _picked(b: Editor, volumes: ir.Value, index: np.ndarray) -> ir.Value:
    """Return [N F, U C, *] of volumes [N, C, D, *] by the index [F, U]; -1 is a frame of zeros."""
    batch, channels, frames, *sizes = shape_of(volumes)
    apart = transpose(b, volumes, [0, 2, 1, 3, 4])
    if (index < 0).any():
        apart = surround(b, apart, {1: (0, 1)})
    count, taps = index.shape
    picked = b.op("Gather", apart, np.where(index < 0, frames, index), axis=1)
    return reshape(b, picked, (batch * count, taps * channels, *sizes))
