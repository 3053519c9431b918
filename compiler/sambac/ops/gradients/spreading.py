"""The gradient of a convolution's image, in the form that suits its sizes.

    dx[n, c, at(p, t)] += sum over o of w[o, c, t] * signal[n, o, p]

The columns of the gradient, one for each tap and position, are a product of filters and signal;
what lies at one place of the image is summed up. With a stride of one it is a convolution with
mirrored filters, too. A transposed convolution does the same, so that there may be biases [C].
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor

from .columns import (
    columns_by_channel,
    columns_by_image,
    filters_of_pairs,
    positions_first,
    taps_first,
)
from .convolution_sizes import (
    FIELDS,
    Convolution,
    convolution_of,
    gains_blocks,
    in_blocks,
    in_whole_blocks,
)
from .formulations import ChoicePoint, Formulation, copying
from .frames import cost_of_frames, fits_frames, joined, signal_frames, spread_frames
from .gathering import ROW, TURNED, as_row, cost_of_padding, cost_of_pairs, fits_pairs
from .phases import cost_of_phases, fits_phases, in_phases
from .rules import cut, reshape, surround, swap_last, transpose
from .windows import Window

_FEW_COLUMNS = 2**22
"""Up to so many elements (16 MiB) the columns of a gradient are made in one piece."""

_ADDED = 1.0  # for each element of columns that is added where it belongs
_ALONE = 0.1  # for each element of the filters, where each image is multiplied by itself
_MOVED = 0.5  # putting an element elsewhere
_RUNS_OF_TAPS = 0.9  # for each element of the filters that is copied in runs of a few taps
_BLOCKED = 0.5  # for each element of the filters that comes into blocks
_OPERATOR = 0.9  # how long a transposed convolution takes beside its columns and their sums


def _pointwise(
    b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Return the signal filtered by filters whose channels have changed roles."""
    return b.op("Conv", signal, _swapped(b, of, filters), bias)


def _swapped(b: Editor, of: Convolution, filters: ir.Value) -> ir.Value:
    """Return the filters as [C, O, *kernel]."""
    return transpose(b, filters, [1, 0, *range(2, 2 + len(of.window.kernel))])


def _mirrored(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return the signal filtered by mirrored filters: taps are read from the last to the first."""
    window = of.window
    flat = reshape(b, filters, (of.maps, of.channels, window.taps))
    backward = b.op("Gather", flat, np.arange(window.taps)[::-1].copy(), axis=2)
    taps = _swapped(b, of, reshape(b, backward, of.filters))
    return b.op(
        "Conv",
        signal,
        taps,
        kernel_shape=window.kernel,
        dilations=window.dilations,
        pads=_margins(window),
    )


def _padded(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx with mirrored filters, and with zeros beside the channels that fill up blocks."""
    turned = in_whole_blocks(_mirror(of))
    whole = replace(of, channels=turned.maps, maps=turned.channels)
    channels, maps = (0, whole.channels - of.channels), (0, whole.maps - of.maps)
    wide = surround(b, filters, {0: maps, 1: channels})
    made = _mirrored(b, whole, surround(b, signal, {1: maps}), wide)
    return cut(b, made, {1: (0, of.channels)})


def _mirror(of: Convolution) -> Convolution:
    """Return the convolution of the signal, with mirrored filters, that makes the image."""
    window = of.window
    begins = _margins(window)[: len(window.kernel)]
    mirrored = replace(window, begins=begins, image=window.positions, positions=window.image)
    return replace(of, channels=of.maps, maps=of.channels, window=mirrored)


def _by_image(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx: filters [C, O * taps] times columns [O * taps, L * N] of the signal."""
    window = of.window
    apart = reshape(b, filters, (of.maps, of.channels, window.taps))
    left = reshape(b, transpose(b, apart, [1, 0, 2]), (of.channels, of.maps * window.taps))
    made = b.op("MatMul", left, columns_by_image(b, _mirror(of), signal, backward=True))
    places = reshape(b, made, (of.channels, prod(window.image), of.batch))
    return transpose(b, places, [2, 0, 1])


def _by_channel(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx: columns [N * L, taps * O] of the signal times filters [taps * O, C]."""
    window = of.window
    right = reshape(b, taps_first(b, of, filters), (window.taps * of.maps, of.channels))
    columns = columns_by_channel(b, _mirror(of), signal, backward=True)
    made = b.op("MatMul", columns, right)
    return swap_last(b, reshape(b, made, (of.batch, prod(window.image), of.channels)))


def _pairs(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx: for each window and place [N, O] times [O, C], summed over windows."""
    windows = positions_first(b, signal)
    windows = reshape(b, windows, (of.window.count, 1, of.batch, of.maps))
    products = b.op("MatMul", windows, filters_of_pairs(b, of, filters))
    return transpose(b, b.op("ReduceSum", products, [0], keepdims=0), [1, 2, 0])


def _row(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx of images of one row: hosts may have a faster convolution for images."""
    row = as_row(of)
    return _transposed(b, row, reshape(b, signal, row.signal), reshape(b, filters, row.filters))


def _margins(window: Window) -> tuple[int, ...]:
    """Return the padding of the signal that a convolution with mirrored filters wants."""
    begins = [e - 1 - begin for e, begin in zip(window.extents, window.begins, strict=True)]
    sizes = zip(window.image, window.positions, begins, window.extents, strict=True)
    ends = [size - positions - begin + e - 1 for size, positions, begin, e in sizes]
    return (*begins, *ends)


def _of_all_images(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx, whose columns are one product for all images."""
    batch, count = of.batch, of.window.count
    rows = reshape(b, signal, (batch, of.maps, count))
    columns = reshape(b, transpose(b, rows, [1, 0, 2]), (of.maps, batch * count))
    product = b.op("MatMul", _columns_first(b, of, filters), columns)
    taps = of.channels * of.window.taps
    return _summed(b, of, transpose(b, reshape(b, product, (taps, batch, count)), [1, 0, 2]))


def _of_each_image(b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value) -> ir.Value:
    """Return dx, whose columns are a product for each image."""
    rows = reshape(b, signal, (of.batch, of.maps, of.window.count))
    return _summed(b, of, b.op("MatMul", _columns_first(b, of, filters), rows))


def _columns_first(b: Editor, of: Convolution, filters: ir.Value) -> ir.Value:
    """Return the filters as [C * taps, O]."""
    return swap_last(b, reshape(b, filters, (of.maps, of.channels * of.window.taps)))


def _summed(b: Editor, of: Convolution, columns: ir.Value) -> ir.Value:
    """Return dx of columns [N, C * taps, L]: Col2Im adds them where they overlap."""
    window = of.window
    # With a height of one, signals take the path of images.
    one = (1,) if len(window.kernel) == 1 else ()
    none = (0,) * len(one)
    return b.op(
        "Col2Im",
        columns,
        [*one, *window.image],
        [*one, *window.kernel],
        strides=[*one, *window.strides],
        dilations=[*one, *window.dilations],
        pads=[*none, *window.begins, *none, *window.ends],
    )


def _in_phases(
    b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Return dx in phases; those of signals are of images of one row, as in `_row`."""
    if len(of.window.kernel) == 1:
        of = as_row(of)
        signal, filters = reshape(b, signal, of.signal), reshape(b, filters, of.filters)
    return in_phases(b, of, _transposed, (signal, filters, bias))


def _frames(
    b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Return dx of images, each spread from the channels of all frames whose windows see it."""
    spread = spread_frames(of)
    flat = reshape(b, transpose(b, filters, [2, 0, 1, 3, 4]), spread.filters)
    put = _in_phases if fits_phases(spread) else _transposed
    return joined(b, put(b, spread, signal_frames(b, of, signal), flat, bias), of.batch)


def _transposed(
    b: Editor, of: Convolution, signal: ir.Value, filters: ir.Value, bias: ir.Value | None = None
) -> ir.Value:
    """Return dx by ConvTranspose, which makes the columns of one image at a time."""
    window = of.window
    return b.op(
        "ConvTranspose",
        signal,
        filters,
        bias,
        **window.attributes,
        output_padding=[max(0, rest) for rest in window.rests],
        group=of.group,
    )


def _fits_mirrored(of: Convolution) -> bool:
    one = set(of.window.strides) == {1}
    return one and of.group == 1 and min(_margins(of.window)) >= 0


def _fits_columns(of: Convolution) -> bool:
    """Whether columns are right and not too large; Col2Im is wrong for volumes with dilation."""
    window = of.window
    trusted = len(window.kernel) <= 2 or all(step == 1 for step in window.dilations)
    return of.group == 1 and trusted and of.batch * _column(of) <= _FEW_COLUMNS


def _column(of: Convolution) -> int:
    """Return the elements of the columns of one image."""
    return of.channels * of.window.taps * of.window.count


def _cost_of_columns(of: Convolution) -> float:
    return of.product + _ADDED * of.batch * _column(of)


def _cost_of_one_product(of: Convolution) -> float:
    columns = copying(of.batch * _column(of), of.window.count, 0)
    return _cost_of_columns(of) + columns + _MOVED * of.batch * of.maps * of.window.count


def _cost_by_image(of: Convolution) -> float:
    moved = of.batch * (of.channels * prod(of.window.image) + of.maps * of.window.count)
    columns = copying(_mirror(of).columns, of.batch)
    return _mirror(of).product + _MOVED * moved + _RUNS_OF_TAPS * of.size + columns


def _cost_by_channel(of: Convolution) -> float:
    moved = of.batch * (of.channels * prod(of.window.image) + of.maps * of.window.count)
    columns = copying(_mirror(of).columns, of.maps)
    return _mirror(of).product + _MOVED * moved + TURNED * of.size + columns


def _cost_of_products(of: Convolution) -> float:
    return _cost_of_columns(of) + _ALONE * of.batch * of.size


def _cost_of_transposed(of: Convolution) -> float:
    if in_blocks(of) and set(of.window.strides) == {1}:
        return of.product + _BLOCKED * of.size
    return _OPERATOR * _cost_of_products(of)


def _cost_of_padded(of: Convolution) -> float:
    turned = in_whole_blocks(_mirror(of))
    return turned.product + (_BLOCKED + _MOVED) * turned.size + cost_of_padding(_mirror(of))


def _cost_of_frames(of: Convolution) -> float:
    spread = spread_frames(of)
    images = _cost_of_phases(spread) if fits_phases(spread) else _cost_of_transposed(spread)
    return images + cost_of_frames(of, spread.window.count, prod(spread.signal))


def _cost_of_phases(of: Convolution) -> float:
    of = as_row(of) if len(of.window.kernel) == 1 else of
    return cost_of_phases(of, _cost_of_transposed)


FORMS: tuple[Formulation[Convolution], ...] = (
    Formulation(
        "filters of one tap",
        lambda of: of.group == 1 and of.window.is_pointwise,
        lambda of: of.product,
        _pointwise,
        takes_bias=True,
    ),
    Formulation(
        "columns of all images",
        lambda of: _fits_columns(of) and of.batch > 1,
        _cost_of_one_product,
        _of_all_images,
    ),
    Formulation("columns of each image", _fits_columns, _cost_of_products, _of_each_image),
    Formulation("pairs of positions", fits_pairs, cost_of_pairs, _pairs),
    Formulation(
        "runs of images",
        lambda of: _fits_mirrored(of) and _mirror(of).at_once,
        _cost_by_image,
        _by_image,
    ),
    Formulation(
        "runs of channels",
        lambda of: _fits_mirrored(of) and _mirror(of).at_once,
        _cost_by_channel,
        _by_channel,
    ),
    Formulation(
        "image of one row",
        lambda of: len(of.window.kernel) == 1 and of.window.taps > 1,
        lambda of: _cost_of_transposed(as_row(of)) + ROW,
        _row,
    ),
    Formulation(
        "mirrored filters",
        _fits_mirrored,
        lambda of: _cost_of_transposed(of) + _MOVED * of.size,
        _mirrored,
    ),
    Formulation(
        "mirrored filters in whole blocks",
        lambda of: _fits_mirrored(of) and gains_blocks(_mirror(of)),
        _cost_of_padded,
        _padded,
    ),
    Formulation("images of frames", fits_frames, _cost_of_frames, _frames, takes_bias=True),
    Formulation("phases", fits_phases, _cost_of_phases, _in_phases, takes_bias=True),
    Formulation(
        "transposed convolution",
        lambda of: True,
        _cost_of_transposed,
        _transposed,
        takes_bias=True,
    ),
)
"""All of them; the last is always right."""

DATA_GRADIENT = ChoicePoint(
    name="data gradient",
    forms=FORMS,
    fields=FIELDS,
    pose=convolution_of,
    operands=lambda of: (of.signal, of.filters),
    result=lambda of: of.image,
)
