"""The gradient of maxima of windows that overlap, one axis after the other.

The maximum of a window is the maximum of the maxima of its rows, so that pooling is pooling along
the last axis, then along the one before, and so on. Back along one axis each of its taps takes what
is left of the gradient where it equals the maximum. That is work for as many taps as the sides of a
window have together, on rows of neighbours, where the kernel that gives indices decides about each
element of a window alone: 0.4 of its time for windows of 3 by 3. Of several equals the first row by
row gets the gradient: along the axis before the last the first row, in it the first element.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce
from math import ceil, nan, prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of

from .rules import cut, reshape, swap_last
from .windows import Window

_MIN_RESULTS = 1 << 12
"""Maxima from which the work is larger than what so many operators cost to start."""


@dataclass(frozen=True)
class _Sliding:
    """Windows along one axis, number `index` of the spatial ones."""

    index: int
    kernel: int
    stride: int
    dilation: int
    begin: int
    end: int
    image: int
    positions: int

    @property
    def places(self) -> list[tuple[int, int]]:
        """In which stride of the axis each tap of the first window lies, and at which place in it.

        Strides are counted from the first element on; padding before it lies in negative ones.
        """
        taps = range(self.kernel)
        return [divmod(tap * self.dilation - self.begin, self.stride) for tap in taps]

    @property
    def periods(self) -> int:
        """How many strides the axis has, the last perhaps in part."""
        return ceil(self.image / self.stride)


def goes_by_axis(x: ir.Value, window: Window) -> bool:
    """Tell whether `to_first_maxima` is right for the windows on `x`, and faster than indices."""
    margins = zip(window.begins, window.ends, window.kernel, strict=True)
    narrow = all(max(begin, end) < size for begin, end, size in margins)
    batch, channels = shape_of(x)[:2]
    many = batch * channels * window.count >= _MIN_RESULTS
    return x.dtype == ir.DataType.FLOAT and len(window.kernel) <= 3 and narrow and many


def to_first_maxima(b: Editor, x: ir.Value, y: ir.Value, dy: ir.Value, window: Window) -> ir.Value:
    """Return dx: `dy` at the first maximum of each window, summed where windows share it.

    `x` has the shape [N, C, *image], `y` and `dy` have [N, C, *positions].
    """
    axes = [_axis(window, index) for index in range(len(window.kernel))]
    pooled, stages = x, []
    for axis in reversed(axes):
        if not _is_whole(axis):
            maxima = y if axis.index == 0 else _pool(b, pooled, axis, len(axes))
            stages.append((axis, pooled, maxima))
            pooled = maxima
    for axis, source, maxima in reversed(stages):
        dy = _back(b, axis, source, maxima, dy)
    return dy


def _axis(window: Window, index: int) -> _Sliding:
    parts = (
        window.kernel, window.strides, window.dilations, window.begins, window.ends,
        window.image, window.positions,
    )  # fmt: skip
    return _Sliding(index, *(part[index] for part in parts))


def _is_whole(axis: _Sliding) -> bool:
    """Tell whether each element is a window of its own."""
    return axis.kernel == 1 and axis.positions == axis.image and not axis.begin


def _pool(b: Editor, x: ir.Value, axis: _Sliding, rank: int) -> ir.Value:
    """Return the maxima along one of `rank` axes."""

    def along(number: int, other: int) -> list[int]:
        return [number if index == axis.index else other for index in range(rank)]

    return b.op(
        "MaxPool",
        x,
        kernel_shape=along(axis.kernel, 1),
        strides=along(axis.stride, 1),
        dilations=along(axis.dilation, 1),
        pads=along(axis.begin, 0) + along(axis.end, 0),
    )


def _back(b: Editor, axis: _Sliding, x: ir.Value, y: ir.Value, dy: ir.Value) -> ir.Value:
    """Return the gradient of `x`, whose maxima along an axis are `y`.

    Windows slide along the axis in the middle, as no rows of neighbours lie across the last one.
    """
    shape, place = shape_of(x), 2 + axis.index
    last = place == len(shape) - 1

    def rows(value: ir.Value) -> ir.Value:
        sizes = shape_of(value)
        if last:
            before = sizes[:-2] if len(sizes) > 3 else ()
            across = sizes[-2] if len(sizes) > 3 else prod(sizes[:2])
            return swap_last(b, reshape(b, value, (prod(before), across, sizes[-1])))
        return reshape(b, value, (prod(sizes[:place]), sizes[place], prod(sizes[place + 1 :])))

    dx = _gathered(b, axis, _shares(b, axis, rows(x), rows(y), rows(dy)))
    return reshape(b, swap_last(b, dx) if last else dx, shape)


def _shares(b: Editor, axis: _Sliding, x: ir.Value, y: ir.Value, dy: ir.Value) -> list[ir.Value]:
    """Return what each tap gets of dy [A, positions, B]: at the first that equals y, all of it.

    Padding equals nothing.
    """
    before, _, after = shape_of(y)
    beyond = axis.periods * axis.stride - axis.image
    whole = _moved(b, x, 0, beyond, nan)
    apart = reshape(b, whole, (before, axis.periods, axis.stride, after))
    shares: list[ir.Value] = []
    for period, place in axis.places:
        phase = cut(b, apart, {2: (place, place + 1)})
        own = reshape(b, phase, (before, axis.periods, after))
        seen = _moved(b, own, -period, axis.positions - axis.periods + period, nan)
        share = b.op("Mul", dy, b.op("Cast", b.op("Equal", seen, y), to=x.dtype))
        shares.append(share)
        if len(shares) < axis.kernel:
            dy = b.op("Sub", dy, share)
    return shares


def _gathered(b: Editor, axis: _Sliding, shares: list[ir.Value]) -> ir.Value:
    """Return [A, image, B]: the sum of what taps get where they lie, by places within a stride."""
    before, _, after = shape_of(shares[0])
    phases = []
    for number in range(axis.stride):
        parts = [
            _moved(b, share, period, axis.periods - axis.positions - period, 0.0)
            for (period, place), share in zip(axis.places, shares, strict=True)
            if place == number
        ]
        none = np.zeros((before, axis.periods, after), np.float32)
        whole = reduce(partial(b.op, "Add"), parts) if parts else b.constant(none)
        phases.append(reshape(b, whole, (before, axis.periods, 1, after)))
    joined = b.op("Concat", *phases, axis=2) if len(phases) > 1 else phases[0]
    whole = reshape(b, joined, (before, axis.periods * axis.stride, after))
    return cut(b, whole, {1: (0, axis.image)})


def _moved(b: Editor, rows: ir.Value, before: int, behind: int, content: float) -> ir.Value:
    """Return `rows` [A, n, B] with so many rows of `content` around; negative: with fewer rows.

    They are cut before: a Pad that does both takes 1.5 times as long as the two operators.
    """
    size = shape_of(rows)[1]
    rows = cut(b, rows, {1: (max(0, -before), size + min(0, behind))})
    if before <= 0 and behind <= 0:
        return rows
    pads = [0, max(0, before), 0, 0, max(0, behind), 0]
    return b.op("Pad", rows, pads, np.array(content, np.float32))
