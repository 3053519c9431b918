"""Which values of a graph lie in blocks, which in order, and which in both."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import copy_node, reads, static_shape

DOMAIN = "com.microsoft.nchwc"
_UNKNOWN = (-1,)


class Layout:
    """Rewrites a graph node by node, in its order; each layout of a value is made when first read.

    `b` edits the graph where the next node stands. `views` has the names of the filters
    [C, 1, H, W] that are images [N, C / N, H, W] seen otherwise, and these images.
    """

    def __init__(self, model: ir.Model, block: int) -> None:
        self.b = Editor(model)
        self.block = block
        self.views: dict[str, ir.Value] = {}
        self._blocked: dict[str, ir.Value] = {}
        self._ordered: dict[str, ir.Value] = {}
        self._replaced: dict[str, ir.Node] = {}
        self._deferred: dict[str, ir.Node] = {}
        self._integers: dict[tuple[int, ...], ir.Value] = {}
        self._count = 0

    def shape(self, value: ir.Value | None) -> tuple[int, ...]:
        """Return the shape of a value; if it is not known, one that none has."""
        shape = None if value is None else static_shape(value)
        return _UNKNOWN if shape is None else shape

    def size(self, value: ir.Value) -> int:
        """Return how many elements a value of known shape has."""
        return prod(self.shape(value))

    def is_image(self, value: ir.Value | None) -> bool:
        """Tell whether the value is float32 [N, C, H, W] with C in whole blocks."""
        shape = self.shape(value)
        return len(shape) == 4 and shape[1] % self.block == 0 and self.is_float(value)

    def is_float(self, value: ir.Value | None) -> bool:
        """Tell whether the value is of the one type that can be blocked."""
        return value is not None and value.dtype == ir.DataType.FLOAT

    def is_number(self, value: ir.Value) -> bool:
        """Tell whether the value has one element."""
        return all(size == 1 for size in self.shape(value))

    def blocked(self, value: ir.Value) -> ir.Value:
        """Return the blocked form of the image `value`, made if it has none yet."""
        name = str(value.name)
        if name not in self._blocked:
            ordered = self.plain(value)
            self._blocked[name] = self.b.op(
                "ReorderInput", ordered, domain=DOMAIN, like=value, name=self.fresh()
            )
        return self._blocked[name]

    def plain(self, value: ir.Value) -> ir.Value:
        """Return `value` in order, put so if it lies in blocks alone: who reads it reads that."""
        name = str(value.name)
        if name not in self._replaced or name in self._ordered:
            return self._ordered.get(name, value)
        made = self._made_late(name) if name in self._deferred else self._put_in_order(value)
        return self._ordered_as(value, made)

    def _ordered_as(self, value: ir.Value, made: ir.Value) -> ir.Value:
        """Let `made` be read, under its name, where `value` is."""
        name = str(value.name)
        made.name = name
        value.replace_all_uses_with(made, replace_graph_outputs=True)
        self._ordered[name] = made
        return made

    def _made_late(self, name: str) -> ir.Value:
        node = self._deferred[name]
        self.keep(node)
        copy = copy_node(node, {}, "", lambda value: str(value.name))
        self.b.put(copy)
        return copy.outputs[0]

    def _put_in_order(self, value: ir.Value) -> ir.Value:
        blocked, channels = self._blocked[str(value.name)], self.shape(value)[1]
        return self.b.op("ReorderOutput", blocked, domain=DOMAIN, like=value, channels=channels)

    def keep(self, node: ir.Node) -> None:
        """Leave `node` as it is, and let it read values in order."""
        for value in tuple(reads(node)):
            self.plain(value)

    def stand_in(self, node: ir.Node, made: ir.Value) -> None:
        """Let `made` be the blocked form of what `node` makes, which nothing reads any more."""
        name = str(node.outputs[0].name)
        self._blocked[name] = made
        self._replaced[name] = node

    def put_instead(self, node: ir.Node, made: ir.Value) -> None:
        """Let `made`, in order, be what `node` makes."""
        self._replaced[str(node.outputs[0].name)] = node
        self._ordered_as(node.outputs[0], made)

    def defer(self, node: ir.Node) -> None:
        """Make what `node` makes only when something reads it in order."""
        name = str(node.outputs[0].name)
        self._deferred[name] = self._replaced[name] = node

    def finish(self) -> None:
        """Put the outputs of the graph in order, and remove what nothing reads any more."""
        graph = self.b.model.graph
        self.b.go_to_end(graph)
        for value in tuple(graph.outputs):
            self.plain(value)
        graph.remove(self._replaced.values(), safe=True)
        unread = [name for name, value in graph.initializers.items() if not value.uses()]
        for name in unread:
            if not graph.initializers[name].is_graph_output():
                del graph.initializers[name]

    def reshaped(self, value: ir.Value, shape: Sequence[int]) -> ir.Value:
        """Return `value` in another shape."""
        wanted, like = self.integers(shape), floats(shape)
        return self.b.op("Reshape", value, wanted, like=like, name=self.fresh())

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """Return the constant int64 tensor of `numbers`."""
        key = tuple(numbers)
        if key not in self._integers:
            self._integers[key] = self.b.initializer(np.asarray(key, np.int64), self.fresh())
        return self._integers[key]

    def spread(self, value: ir.Value, strides: Sequence[int]) -> ir.Value:
        """Return the blocked image `value` with `stride - 1` zeros behind each element."""
        batch, channels, height, width = self.shape(value)
        rows, columns = height * strides[0], width * strides[1]
        image = self.blocked(value)
        repeated = self.b.op(
            "Upsample",
            image,
            domain=DOMAIN,
            like=floats((batch, channels, rows, columns)),
            name=self.fresh(),
            scales=[1, 1, *strides],
            mode="nearest",
        )
        corner = np.zeros((strides[0], strides[1] * self.block), np.float32)
        corner[0, : self.block] = 1
        tile = self.b.initializer(corner, self.fresh())
        times, tiled = self.integers((height, width)), floats((rows, columns * self.block))
        pattern = self.b.op("Tile", tile, times, like=tiled, name=self.fresh())
        apart = self.reshaped(
            repeated, (batch * channels // self.block, rows, columns * self.block)
        )
        kept = self.b.op("Mul", apart, pattern, like=apart, name=self.fresh())
        return self.reshaped(kept, (batch, channels, rows, columns))

    def widened(self, image: ir.Value, before: int, behind: int) -> ir.Value:
        """Return `image`, the blocked form of one, with so many zeros around each row."""
        batch, channels, height, width = self.shape(image)
        rows, wide = batch * channels // self.block, before + width + behind
        pads = self.integers((0, 0, before * self.block, 0, 0, behind * self.block))
        flat = self.reshaped(image, (rows, height, width * self.block))
        like = floats((rows, height, wide * self.block))
        padded = self.b.op("Pad", flat, pads, like=like, name=self.fresh())
        return self.reshaped(padded, (batch, channels, height, wide))

    def fresh(self) -> str:
        """Return a name that no value has."""
        self._count += 1
        return f"b{self._count - 1}"


def floats(shape: Sequence[int]) -> ir.Value:
    """Return what float32 values of this shape are like."""
    return ir.val("", ir.DataType.FLOAT, tuple(shape))


def numbers(node: ir.Node, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the integers of an attribute."""
    attribute = node.attributes.get(name)
    if attribute is None:
        return default
    found = attribute.value
    return (found,) if isinstance(found, int) else tuple(found)


def takes_another_average(node: ir.Node) -> bool:
    """Tell whether the kernel in blocks is wrong for a pooling: it is that of an older AveragePool.

    It divides by the size of a window also where that reaches beyond all pads, and has no gaps.
    """
    beyond = numbers(node, "ceil_mode", (0,)) == (1,)
    counted = numbers(node, "count_include_pad", (0,)) == (1,)
    gaps = set(numbers(node, "dilations", (1,))) != {1}
    return node.op_type == "AveragePool" and (gaps or (beyond and counted))
