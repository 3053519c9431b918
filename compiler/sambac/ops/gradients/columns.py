"""The columns of images: what each tap of each window sees, side by side for one large product."""

from __future__ import annotations

from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .convolution_sizes import Convolution
from .rules import reshape, transpose
from .windows import Window, pad


def columns_by_image(
    b: Editor, of: Convolution, image: ir.Value, *, backward: bool = False
) -> ir.Value:
    """Return the columns [C * taps, L * N], copied in runs of N; taps may be in backward order."""
    window = of.window
    axes = [*range(1, 2 + len(window.kernel)), 0]
    moved = pad(b, transpose(b, image, axes), window, 1)
    flat = reshape(b, moved, (of.channels, prod(window.padded), of.batch))
    index = window.index()[::-1] if backward else window.index()
    picked = b.op("Gather", flat, index.reshape(-1), axis=1)
    return reshape(b, picked, (of.channels * window.taps, window.count * of.batch))


def columns_by_channel(
    b: Editor, of: Convolution, image: ir.Value, *, backward: bool = False
) -> ir.Value:
    """Return the columns [N * L, taps * C], copied in runs of C; taps may be in backward order."""
    window = of.window
    index = window.index()[::-1] if backward else window.index()
    picked = b.op("Gather", channels_last(b, of, image), index.T.reshape(-1), axis=1)
    return reshape(b, picked, (of.batch * window.count, window.taps * of.channels))


def channels_last(b: Editor, of: Convolution, image: ir.Value) -> ir.Value:
    """Return the padded image as [N, positions of it, C]."""
    window = of.window
    moved = pad(b, transpose(b, image, [0, *range(2, 2 + len(window.kernel)), 1]), window, 1)
    return reshape(b, moved, (of.batch, prod(window.padded), of.channels))


def flat_positions(b: Editor, image: ir.Value) -> ir.Value:
    """Return [N, C, L] from [N, C, *]."""
    batch, channels, *sizes = shape_of(image)
    return reshape(b, image, (batch, channels, prod(sizes)))


def rows_of_channels(b: Editor, image: ir.Value) -> ir.Value:
    """Return [C, N * L] from [N, C, *]."""
    batch, channels, *sizes = shape_of(image)
    rows = transpose(b, flat_positions(b, image), [1, 0, 2])
    return reshape(b, rows, (channels, batch * prod(sizes)))


def positions_first(b: Editor, image: ir.Value) -> ir.Value:
    """Return [L, N, C] from [N, C, *]."""
    return transpose(b, flat_positions(b, image), [2, 0, 1])


def filters_of_pairs(b: Editor, of: Convolution, filters: ir.Value) -> ir.Value:
    """Return [P, L, O, C]: for each window p and place l the filters of the tap that sees it there.

    Zeros where none does. Copied in runs of O * C.
    """
    window = of.window
    taps = taps_first(b, of, filters)
    index = seen_taps(window)
    if (index == window.taps).any():
        nothing = b.zeros(ir.val("", of.dtype, (1, of.maps, of.channels)))
        taps = b.op("Concat", taps, nothing, axis=0)
    return b.op("Gather", taps, index, axis=0)


def taps_first(b: Editor, of: Convolution, filters: ir.Value) -> ir.Value:
    """Return the filters as [taps, O, C], the order that they come into most quickly."""
    return transpose(b, reshape(b, filters, (of.maps, of.channels, of.window.taps)), [2, 0, 1])


def seen_taps(window: Window) -> np.ndarray:
    """Return, int64 [P, L], the tap by which a window sees a place; the number of taps for none."""
    inside = np.full(window.padded, -1, np.int64)
    places = tuple(slice(b, b + size) for b, size in zip(window.begins, window.image, strict=True))
    inside[places] = np.arange(prod(window.image)).reshape(window.image)
    found = np.full((window.count, prod(window.image)), window.taps, np.int64)
    for tap, row in enumerate(inside.reshape(-1)[window.index()]):
        seen = np.flatnonzero(row >= 0)
        found[seen, row[seen]] = tap
    return found
