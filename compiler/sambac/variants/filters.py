"""The filters of a convolution, put into the order that blocked convolutions read them in.

With B channels to a block, filters [O, C, h, w] are wanted as

    [O / B, C / B, h, w, B of C, B of O]    for blocked images
    [O / B, C, h, w, B of O]                for images of fewer than B channels, which stay as are
    [O / B, h, w, B of O]                   where each channel has one filter of its own

and [O, C, h, w] on paper.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from .layout import DOMAIN, Layout, floats


@dataclass(frozen=True)
class Filters:
    """The filters of one convolution: `shape` is [O, C, h, w], C the channels that one reads.

    Those of a transposed convolution lie as [C, O, h, w], unless each channel has its own.
    """

    value: ir.Value
    shape: tuple[int, ...]
    group: int
    transposed: bool

    @classmethod
    def of(
        cls, layout: Layout, value: ir.Value | None, group: int, transposed: bool = False
    ) -> Filters | None:
        """Return the filters `value`; None if they cannot be blocked."""
        shape, block = layout.shape(value), layout.block
        if value is None or len(shape) != 4 or not layout.is_float(value):
            return None
        depthwise = group > 1 and shape[:2] == (group, 1)
        if group > 1 and not depthwise:
            return None
        if transposed and not depthwise:
            shape = (shape[1], shape[0], *shape[2:])
        fits = shape[0] % block == 0
        if not depthwise:
            fits = fits and (shape[1] % block == 0 or (shape[1] < block and not transposed))
        return cls(value, shape, group, transposed) if fits else None

    @property
    def depthwise(self) -> bool:
        """Whether each channel has one filter of its own."""
        return self.group > 1

    @property
    def pointwise(self) -> bool:
        """Whether the filters see one pixel."""
        return self.shape[2:] == (1, 1) and not self.depthwise

    def takes(self, layout: Layout, image: ir.Value) -> bool:
        """Tell whether `image` can be had in the layout that these filters go with."""
        return self.sees_few(layout) or layout.is_image(image)

    def images(self, layout: Layout, image: ir.Value) -> list[ir.Value]:
        """Return what a convolution of `image` reads in blocks."""
        filters = [self.value] if self.depthwise and self._is_view(layout) else []
        return filters if self.sees_few(layout) else [image, *filters]

    def mirrored_images(self, layout: Layout) -> list[ir.Value]:
        """Return what `mirrored` reads in blocks: filters [C, O, h, w], as if they were images."""
        return [] if self.depthwise or not layout.is_image(self.value) else [self.value]

    def image(self, layout: Layout, image: ir.Value) -> ir.Value:
        """Return `image` in the layout that these filters go with."""
        return layout.plain(image) if self.sees_few(layout) else layout.blocked(image)

    def _is_view(self, layout: Layout) -> bool:
        return self.value.name in layout.views

    def sees_few(self, layout: Layout) -> bool:
        """Tell whether images have too few channels for a block, and stay in order."""
        return not self.depthwise and self.shape[1] < layout.block

    def plain(self, layout: Layout) -> ir.Value:
        """Return the filters of a convolution, reordered."""
        if self.depthwise:
            return self._of_channels(layout)
        maps, channels, height, width = self.shape
        block, taps = layout.block, height * width
        value = layout.reshaped(layout.plain(self.value), (maps // block, block, channels, taps))
        value = self._blocks(layout, value)
        if channels >= block:
            value = self._taps_first(layout, value, range(taps))
        return layout.reshaped(value, self.shape)

    def mirrored(self, layout: Layout) -> ir.Value:
        """Return the filters of a transposed convolution as those of a convolution, reordered.

        What is spread over the taps from the first to the last, is gathered from the last to the
        first.
        """
        maps, channels, height, width = self.shape
        block, taps = layout.block, height * width
        if self.depthwise:
            value = layout.reshaped(layout.plain(self.value), (1, maps, height, width))
            value = layout.reshaped(self._blocks(layout, value), (maps // block, taps, block))
            return layout.reshaped(self._backward(layout, value, 1), self.shape)
        value = layout.blocked(self.value)
        if maps > block:
            value = layout.reshaped(value, (channels, maps // block, taps * block))
            like = floats((maps // block, channels, taps * block))
            value = layout.b.op("Transpose", value, like=like, name=layout.fresh(), perm=(1, 0, 2))
        value = self._taps_first(layout, value, range(taps)[::-1])
        return layout.reshaped(value, self.shape)

    def _of_channels(self, layout: Layout) -> ir.Value:
        """Return filters [C, 1, h, w]; those that are an image seen otherwise may be blocked."""
        image = layout.views.get(str(self.value.name))
        if image is None:
            maps, _, height, width = self.shape
            value = layout.reshaped(layout.plain(self.value), (1, maps, height, width))
            return layout.reshaped(self._blocks(layout, value), self.shape)
        return layout.reshaped(layout.blocked(image), self.shape)

    def _blocks(self, layout: Layout, value: ir.Value) -> ir.Value:
        """Return `value` [N, O, ...] as [N, O / B, ..., B of O]: filters are moved as images are.

        A Transpose would move them element by element, which takes four times as long.
        """
        return layout.b.op("ReorderInput", value, domain=DOMAIN, like=value, name=layout.fresh())

    def _taps_first(self, layout: Layout, value: ir.Value, taps: range) -> ir.Value:
        """Return [O / B, C / B, taps, B of C, B of O] of [O / B, C, h, w, B of O].

        All threads gather, and one alone takes half as long as it does with a Transpose.
        """
        block, (maps, channels, *_) = layout.block, self.shape
        if len(taps) == 1:
            return value
        order = tuple(place * len(taps) + tap for tap in taps for place in range(block))
        apart = (maps * channels // block**2, len(order), block)
        return layout.b.op(
            "Gather",
            layout.reshaped(value, apart),
            layout.integers(order),
            like=floats(apart),
            name=layout.fresh(),
            axis=1,
        )

    def _backward(self, layout: Layout, value: ir.Value, axis: int) -> ir.Value:
        """Return `value` with an axis reversed."""
        if layout.shape(value)[axis] == 1:
            return value
        backward = layout.integers(tuple(reversed(range(layout.shape(value)[axis]))))
        return layout.b.op("Gather", value, backward, like=value, name=layout.fresh(), axis=axis)
