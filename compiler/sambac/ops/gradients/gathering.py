"""A convolution whose filters are no constants, in the form that suits its sizes.

    y[n, o, p] = sum over c and taps t of x[n, c, at(p, t)] * w[o, c, t]

Where filters are constants onnxruntime puts them into its fastest order by itself, and there is
nothing to choose.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor

from .columns import columns_by_channel, columns_by_image, filters_of_pairs, positions_first
from .convolution_sizes import (
    FIELDS,
    Convolution,
    convolution_of,
    gains_blocks,
    in_whole_blocks,
    reads_blocks,
)
from .formulations import ChoicePoint, Formulation, copying
from .frames import cost_of_frames, fits_frames, image_frames, joined, seen_frames
from .rules import cut, reshape, surround, swap_last, transpose

_MOST_PAIRS = 32
"""Filters are copied for so many pairs of a window and a place of the image at most."""

ROW = 4000  # seeing signals as images, and back
TURNED = 0.25  # for each element of the filters that is put in order of taps
_READ = 0.2  # for each element of filters that is read for a few rows
_MOVED = 0.5  # putting an element elsewhere
_ALONE = 0.1  # for each element of the filters, where each image is multiplied by itself
_UNBLOCKED = 1.3  # how much longer a convolution takes that is not in blocks


def as_row(of: Convolution) -> Convolution:
    """Return a convolution of signals as one of images of one row."""
    window = of.window
    one, none = (1,), (0,)
    return replace(
        of,
        window=replace(
            window,
            kernel=one + window.kernel,
            strides=one + window.strides,
            dilations=one + window.dilations,
            begins=none + window.begins,
            image=one + window.image,
            positions=one + window.positions,
        ),
    )


def put_conv(
    b: Editor, of: Convolution, image: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Put the operator itself."""
    window = of.window
    return b.op(
        "Conv",
        image,
        filters,
        bias,
        **window.attributes,
        group=of.group,
    )


def _row(b: Editor, of: Convolution, image: ir.Value, filters: ir.Value) -> ir.Value:
    """Return y of images of one row: hosts may have a faster convolution for images."""
    row = as_row(of)
    return put_conv(b, row, reshape(b, image, row.image), reshape(b, filters, row.filters))


def _padded(b: Editor, of: Convolution, image: ir.Value, filters: ir.Value) -> ir.Value:
    """Return y, with zeros beside the channels that fill up blocks."""
    whole = in_whole_blocks(of)
    channels, maps = (0, whole.channels - of.channels), (0, whole.maps - of.maps)
    wide = surround(b, filters, {0: maps, 1: channels})
    made = put_conv(b, whole, surround(b, image, {1: channels}), wide)
    return cut(b, made, {1: (0, of.maps)})


def _frames(
    b: Editor, of: Convolution, image: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Return y of images, whose channels are those of all frames that a window sees."""
    seen = seen_frames(of)
    flat = reshape(b, transpose(b, filters, [0, 2, 1, 3, 4]), seen.filters)
    return joined(b, put_conv(b, seen, image_frames(b, of, image), flat, bias), of.batch)


def _pairs(b: Editor, of: Convolution, image: ir.Value, filters: ir.Value) -> ir.Value:
    """Return y: for each window and place [N, C] times [C, O], summed over places."""
    places = reshape(b, positions_first(b, image), (1, prod(of.window.image), *_rows(of)))
    turned = swap_last(b, filters_of_pairs(b, of, filters))
    sums = b.op("ReduceSum", b.op("MatMul", places, turned), [1], keepdims=0)
    return transpose(b, sums, [1, 2, 0])


def _rows(of: Convolution) -> tuple[int, int]:
    return of.batch, of.channels


def _by_image(b: Editor, of: Convolution, image: ir.Value, filters: ir.Value) -> ir.Value:
    """Return y: filters [O, C * taps] as they lie times columns [C * taps, L * N]."""
    left = reshape(b, filters, (of.maps, of.channels * of.window.taps))
    made = b.op("MatMul", left, columns_by_image(b, of, image))
    apart = reshape(b, made, (of.maps, of.window.count, of.batch))
    return transpose(b, apart, [2, 0, 1])


def _by_channel(b: Editor, of: Convolution, image: ir.Value, filters: ir.Value) -> ir.Value:
    """Return y: columns [N * L, taps * C], copied in runs of C, times filters [taps * C, O]."""
    taps = of.window.taps
    apart = swap_last(b, reshape(b, filters, (of.maps, of.channels, taps)))
    right = swap_last(b, reshape(b, apart, (of.maps, taps * of.channels)))
    made = b.op("MatMul", columns_by_channel(b, of, image), right)
    return swap_last(b, reshape(b, made, (of.batch, of.window.count, of.maps)))


def fits_pairs(of: Convolution) -> bool:
    """Whether there are few enough pairs of a window and a place for filters of their own."""
    return of.group == 1 and of.window.count * prod(of.window.image) <= _MOST_PAIRS


def cost_of_pairs(of: Convolution) -> float:
    """Return the cost of copying filters for all pairs, and of multiplying with them."""
    pairs = of.window.count * prod(of.window.image)
    elements = pairs * of.maps * of.channels
    copied = copying(elements, of.maps * of.channels) + _READ * elements
    return of.product * pairs / (of.window.taps * of.window.count) + copied + TURNED * of.size


def cost_of_conv(of: Convolution) -> float:
    """Return the cost of the operator, in blocks where hosts may have them."""
    alone = _ALONE * of.batch * of.size
    if of.window.is_pointwise and of.group == 1:
        return of.product + alone  # a product for each image, as it lies
    if reads_blocks(of):
        return of.product + _MOVED * of.size
    return _UNBLOCKED * (of.product + copying(of.columns, of.window.positions[-1])) + alone


def cost_of_padding(of: Convolution) -> float:
    """Return the cost of adding zeros to the image and the filters, and of leaving out maps."""
    whole = in_whole_blocks(of)
    image = prod(whole.image) if whole.channels != of.channels else 0
    signal = prod(of.signal) if whole.maps != of.maps else 0
    return _MOVED * (image + signal + whole.size)


def _cost_of_frames(of: Convolution) -> float:
    seen = seen_frames(of)
    copied = cost_of_frames(of, prod(seen.window.image), prod(seen.image))
    return cost_of_conv(seen) + copied


def _cost_by_image(of: Convolution) -> float:
    moved = of.batch * (of.channels * prod(of.window.image) + of.maps * of.window.count)
    return of.product + _MOVED * moved + copying(of.columns, of.batch)


def _cost_by_channel(of: Convolution) -> float:
    moved = of.batch * (of.channels * prod(of.window.image) + of.maps * of.window.count)
    return of.product + _MOVED * moved + 2 * TURNED * of.size + copying(of.columns, of.channels)


FORMS: tuple[Formulation[Convolution], ...] = (
    Formulation(
        "image of one row",
        lambda of: len(of.window.kernel) == 1 and of.window.taps > 1,
        lambda of: cost_of_conv(as_row(of)) + ROW,
        _row,
    ),
    Formulation("images of frames", fits_frames, _cost_of_frames, _frames, takes_bias=True),
    Formulation(
        "whole blocks",
        lambda of: gains_blocks(of) and not of.window.is_pointwise,
        lambda of: cost_of_conv(in_whole_blocks(of)) + cost_of_padding(of),
        _padded,
    ),
    Formulation("pairs of positions", fits_pairs, cost_of_pairs, _pairs),
    Formulation("runs of images", lambda of: of.at_once, _cost_by_image, _by_image),
    Formulation("runs of channels", lambda of: of.at_once, _cost_by_channel, _by_channel),
    Formulation("convolution", lambda of: True, cost_of_conv, put_conv),
)
"""All of them; the last is always right."""

CONVOLUTION = ChoicePoint(
    name="convolution",
    forms=FORMS,
    fields=FIELDS,
    pose=convolution_of,
    operands=lambda of: (of.image, of.filters),
    result=lambda of: of.signal,
)
