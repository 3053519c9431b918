"""Windows that slide over an image: which elements each output position of a node sees.

Along one axis, tap t of output position o lies at `o * stride - begin + t * dilation`; taps beyond
the image read padding. Everything else about padding (automatic, ceiled, of transposed
convolutions) follows from the sizes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute, static_shape, text_attribute

from .rules import integers_attribute, operand, surround

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Window:
    """The windows of one node, a number for each spatial axis.

    `image` has the sizes of what the windows slide over, `positions` how many windows there are.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    image: tuple[int, ...]
    positions: tuple[int, ...]

    @property
    def taps(self) -> int:
        """The number of elements in a window."""
        return prod(self.kernel)

    @property
    def count(self) -> int:
        """The number of windows."""
        return prod(self.positions)

    @property
    def extents(self) -> tuple[int, ...]:
        """What a window spans, dilation included."""
        pairs = zip(self.kernel, self.dilations, strict=True)
        return tuple((size - 1) * dilation + 1 for size, dilation in pairs)

    @property
    def ends(self) -> tuple[int, ...]:
        """How far the last windows reach beyond the image; never negative."""
        return tuple(max(0, -rest) for rest in self.rests)

    @property
    def rests(self) -> tuple[int, ...]:
        """How many elements at the end of each axis no window sees; negative: padding is seen."""
        return tuple(
            size + begin - (positions - 1) * stride - extent
            for size, begin, positions, stride, extent in zip(
                self.image, self.begins, self.positions, self.strides, self.extents, strict=True
            )
        )

    @property
    def attributes(self) -> dict[str, Any]:
        """What an operator with these windows has of them."""
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": [*self.begins, *self.ends],
        }

    @property
    def padded(self) -> tuple[int, ...]:
        """The sizes of the padded image."""
        triples = zip(self.begins, self.image, self.ends, strict=True)
        return tuple(begin + size + end for begin, size, end in triples)

    @property
    def is_padded(self) -> bool:
        """Whether some window sees padding."""
        return any(self.begins) or any(self.ends)

    @property
    def is_pointwise(self) -> bool:
        """Whether every window is one element, and every element has one."""
        return self.taps == 1 and self.positions == self.image and not self.is_padded

    @property
    def tiles(self) -> bool:
        """Whether windows neither overlap, nor have gaps, nor see padding."""
        return self.kernel == self.strides and self.extents == self.kernel and not self.is_padded

    @property
    def separate(self) -> bool:
        """Whether no element is seen by two windows."""
        return all(e <= s for e, s in zip(self.extents, self.strides, strict=True))

    def index(self) -> Array:
        """Return, int64 [taps, count], where in the flat padded image each tap of a window lies."""
        flat = np.zeros((1, 1), np.int64)
        for axis, size in enumerate(self.padded):
            where = self.places(axis)
            taps, count = len(flat) * len(where), flat.shape[1] * where.shape[1]
            pairs = flat[:, None, :, None] * size + where[None, :, None, :]
            flat = pairs.reshape(taps, count)
        return flat

    def matrix(self, axis: int) -> Array:
        """Return, float64 [positions, image], which elements each window sees along one axis."""
        places = self.places(axis) - self.begins[axis]
        seen = np.zeros((self.positions[axis], self.image[axis]))
        for row in places:
            inside = (row >= 0) & (row < self.image[axis])
            seen[np.flatnonzero(inside), row[inside]] = 1
        return seen

    def counts(self, axis: int, before: int, after: int) -> Array:
        """Return, int64 [positions], how many taps lie in the image or its margins on one axis."""
        places = self.places(axis) - self.begins[axis]
        inside = (places >= -before) & (places < self.image[axis] + after)
        return np.asarray(inside.sum(axis=0))

    def places(self, axis: int) -> Array:
        """Return, int64 [kernel, positions], where in the padded axis each tap lies."""
        taps = np.arange(self.kernel[axis])[:, None] * self.dilations[axis]
        return taps + np.arange(self.positions[axis])[None, :] * self.strides[axis]

    def offsets(self) -> list[tuple[int, ...]]:
        """Return where in the padded image each tap of the first window lies, row by row."""
        axes = zip(self.kernel, self.dilations, strict=True)
        return list(product(*(range(0, size * step, step) for size, step in axes)))


def window_of(node: ir.Node, *, transposed: bool = False) -> Window:
    """Return the windows of a convolution or pooling; of a transposed one, those on its output."""
    source, result = shape_of(operand(node, 0))[2:], shape_of(node.outputs[0])[2:]
    image, positions = (result, source) if transposed else (source, result)
    kernel = integers_attribute(node, "kernel_shape") or _filter_sizes(node)
    ones = (1,) * len(kernel)
    strides = integers_attribute(node, "strides") or ones
    dilations = integers_attribute(node, "dilations") or ones
    bare = Window(kernel, strides, dilations, (0,) * len(kernel), image, positions)
    return replace(bare, begins=_begins(node, bare, transposed))


def _filter_sizes(node: ir.Node) -> tuple[int, ...]:
    return shape_of(operand(node, 1))[2:]


def _begins(node: ir.Node, bare: Window, transposed: bool) -> tuple[int, ...]:
    """Return the padding before the image; `bare` are the windows as if there was none."""
    mode = node.attributes["auto_pad"].as_string() if "auto_pad" in node.attributes else "NOTSET"
    given_shape = transposed and "output_shape" in node.attributes
    if mode == "VALID" and not given_shape:
        return bare.begins
    if mode == "NOTSET" and not given_shape:
        pads = integers_attribute(node, "pads")
        return pads[: len(bare.kernel)] if pads else bare.begins
    extra = (integers_attribute(node, "output_padding") if transposed else None) or bare.begins
    totals = [max(0, more - rest) for rest, more in zip(bare.rests, extra, strict=True)]
    return tuple((total + (mode != "SAME_UPPER")) // 2 for total in totals)


def no_windows(node: ir.Node) -> str | None:
    """Return why nobody can train through a pooling, or None if one can.

    Of these onnxruntime makes something else than ONNX says. It finds automatic margins without
    regard to dilations. And some of its versions count what lies beyond all margins in an average.
    """
    if any(static_shape(value) is None for value in (operand(node, 0), node.outputs[0])):
        return None  # open sizes are refused for themselves
    window = window_of(node)
    mode = text_attribute(node, "auto_pad", "NOTSET")
    dilated = any(extent > size for extent, size in zip(window.extents, window.kernel, strict=True))
    if mode.startswith("SAME") and dilated:
        return f"auto_pad {mode} beside dilations has margins of several sizes; give it pads"
    given = integers_attribute(node, "pads") or (0,) * 2 * len(window.kernel)
    allowed = zip(window.ends, given[len(window.kernel) :], strict=True)
    rounded = int_attribute(node, "ceil_mode") == 0 and any(end > pad for end, pad in allowed)
    if node.op_type == "AveragePool" and mode in ("NOTSET", "VALID") and rounded:
        return "its windows are larger than the image with its pads"
    return None


def no_transposed_windows(node: ir.Node) -> str | None:
    """Return why nobody can train through a ConvTranspose, or None if one can.

    Results of those sizes are the ones that the ONNX library counts otherwise than onnxruntime.
    """
    if any(static_shape(value) is None for value in (operand(node, 0), node.outputs[0])):
        return None  # open sizes are refused for themselves
    window = window_of(node, transposed=True)
    if "output_shape" in node.attributes:
        smaller = any(a < b for a, b in zip(window.image, window.positions, strict=True))
        return "its output_shape is smaller than its image; give it pads" if smaller else None
    mode = text_attribute(node, "auto_pad", "NOTSET")
    gaps = any(size < step for size, step in zip(window.extents, window.strides, strict=True))
    if mode.startswith("SAME") and (gaps or any(integers_attribute(node, "output_padding") or ())):
        return (
            f"auto_pad {mode} with gaps or output_padding has a result of two sizes; give it pads"
        )
    return None


def pad(b: Editor, image: ir.Value, window: Window, first: int) -> ir.Value:
    """Pad the spatial axes of `image`, which begin at `first`, with zeros for `window`."""
    margins = zip(window.begins, window.ends, strict=True)
    return surround(b, image, dict(enumerate(margins, first)))
