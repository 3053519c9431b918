"""The filters of a convolution, put into the order that blocked convolutions read them in.

With B channels to a block, filters [O, C, h, w] are wanted as

    [O / B, C / B, h, w, B of C, B of O]    for blocked images
    [O / B, C, h, w, B of O]                for images of fewer than B channels, which stay as are
    [O / B, h, w, B of O]                   where each channel has one filter of its own

and [O, C, h, w] on paper.
"""

from __future__ import annotations

from dataclasses import dataclass

from .layout import Layout


@dataclass(frozen=True)
class Filters:
    """The filters of one convolution: `shape` is [O, C, h, w], C the channels that one reads.

    Those of a transposed convolution lie as [C, O, h, w], unless each channel has its own.
    """

    name: str
    shape: tuple[int, ...]
    group: int
    transposed: bool

    @classmethod
    def of(cls, layout: Layout, name: str, group: int, transposed: bool = False) -> Filters | None:
        """Return the filters `name`; None if they cannot be blocked."""
        shape, block = layout.shape(name), layout.block
        if len(shape) != 4 or not layout.is_float(name):
            return None
        depthwise = group > 1 and shape[:2] == (group, 1)
        if group > 1 and not depthwise:
            return None
        if transposed and not depthwise:
            shape = (shape[1], shape[0], *shape[2:])
        fits = shape[0] % block == 0
        if not depthwise:
            fits = fits and (shape[1] % block == 0 or (shape[1] < block and not transposed))
        return cls(name, shape, group, transposed) if fits else None

    @property
    def depthwise(self) -> bool:
        """Whether each channel has one filter of its own."""
        return self.group > 1

    @property
    def pointwise(self) -> bool:
        """Whether the filters see one pixel."""
        return self.shape[2:] == (1, 1) and not self.depthwise

    def takes(self, layout: Layout, name: str) -> bool:
        """Tell whether the image `name` can be had in the layout that these filters go with."""
        return self._sees_few(layout) or layout.is_image(name)

    def images(self, layout: Layout, name: str) -> list[str]:
        """Return what a convolution of `name` reads in blocks."""
        filters = [self.name] if self.depthwise and self.name in layout.views else []
        return filters if self._sees_few(layout) else [name, *filters]

    def image(self, layout: Layout, name: str) -> str:
        """Return the image in the layout that these filters go with."""
        return layout.plain(name) if self._sees_few(layout) else layout.blocked(name)

    def _sees_few(self, layout: Layout) -> bool:
        """Tell whether images have too few channels for a block, and stay in order."""
        return not self.depthwise and self.shape[1] < layout.block

    def plain(self, layout: Layout) -> str:
        """Return the filters of a convolution, reordered."""
        if self.depthwise:
            return self._of_channels(layout)
        maps, channels, *sizes = self.shape
        block = layout.block
        name = layout.plain(self.name)
        if channels < block:
            few = (maps // block, block, channels, *sizes)
            return self._moved(layout, name, few, (0, 2, 3, 4, 1))
        many = (maps // block, block, channels // block, block, *sizes)
        return self._moved(layout, name, many, (0, 2, 4, 5, 3, 1))

    def mirrored(self, layout: Layout) -> str:
        """Return the filters of a transposed convolution as those of a convolution, reordered.

        What is spread over the taps from the first to the last, is gathered from the last to the
        first.
        """
        maps, channels, *sizes = self.shape
        taps, block = sizes[0] * sizes[1], layout.block
        name = layout.plain(self.name)
        if self.depthwise:
            return self._moved(layout, name, (maps // block, block, taps), (0, 2, 1), mirrored=1)
        apart = (channels // block, block, maps // block, block, taps)
        return self._moved(layout, name, apart, (2, 0, 4, 1, 3), mirrored=2)

    def _of_channels(self, layout: Layout) -> str:
        """Return filters [C, 1, h, w]; those that are an image seen otherwise may be blocked."""
        image = layout.views.get(self.name)
        if image is None:
            maps, _, height, width = self.shape
            shape = (maps // layout.block, layout.block, height * width)
            return self._moved(layout, layout.plain(self.name), shape, (0, 2, 1))
        return layout.op("Reshape", [layout.blocked(image), layout.integers(self.shape)])

    def _moved(
        self,
        layout: Layout,
        name: str,
        apart: tuple[int, ...],
        order: tuple[int, ...],
        mirrored: int | None = None,
    ) -> str:
        """Return `name` seen as `apart`, with axes in this order, one of them then reversed."""
        moved = layout.op("Reshape", [name, layout.integers(apart)])
        moved = layout.op("Transpose", [moved], perm=order)
        if mirrored is not None:
            backward = layout.integers(tuple(reversed(range(apart[order[mirrored]]))))
            moved = layout.op("Gather", [moved, backward], axis=mirrored)
        return layout.op("Reshape", [moved, layout.integers(self.shape)])
