"""Which values of a graph lie in blocks, which in order, and which in both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

from sambac.graph.node_facts import static_shape
from sambac.graph.protos import subgraphs

_DOMAIN = "com.microsoft.nchwc"
_UNKNOWN = (-1,)


class Layout:
    """Rewrites a graph node by node, in its order; each layout of a value is made when first read.

    `nodes` and `constants` are the new graph. `views` has the filters [C, 1, H, W] that are images
    [N, C / N, H, W] seen otherwise.
    """

    def __init__(self, graph: onnx.GraphProto, values: Mapping[str, ir.Value], block: int) -> None:
        self.block = block
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.views: dict[str, str] = {}
        self._values = values
        self._ordered = {"", *(value.name for value in graph.input)}
        self._ordered.update(tensor.name for tensor in graph.initializer)
        self._blocked: dict[str, str] = {}
        self._deferred: dict[str, onnx.NodeProto] = {}
        self._integers: dict[tuple[int, ...], str] = {}
        self._count = 0

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value of the old graph; if it is not known, one that none has."""
        value = self._values.get(name)
        shape = None if value is None else static_shape(value)
        return _UNKNOWN if shape is None else shape

    def size(self, name: str) -> int:
        """Return how many elements a value of known shape has."""
        return prod(self.shape(name))

    def is_image(self, name: str) -> bool:
        """Tell whether the value is float32 [N, C, H, W] with C in whole blocks."""
        shape = self.shape(name)
        return len(shape) == 4 and shape[1] % self.block == 0 and self.is_float(name)

    def is_float(self, name: str) -> bool:
        """Tell whether the value is of the one type that can be blocked."""
        value = self._values.get(name)
        return value is not None and value.dtype == ir.DataType.FLOAT

    def is_number(self, name: str) -> bool:
        """Tell whether the value has one element."""
        return all(size == 1 for size in self.shape(name))

    def blocked(self, name: str) -> str:
        """Return the blocked form of the image `name`, made if it has none yet."""
        if name not in self._blocked:
            self._blocked[name] = self.op("ReorderInput", [self.plain(name)], _DOMAIN)
        return self._blocked[name]

    def plain(self, name: str) -> str:
        """Return `name`, put in order if it lies in blocks alone."""
        if name in self._ordered:
            return name
        if name in self._deferred:
            self.copy(self._deferred[name])
        elif name in self._blocked:
            node = onnx.helper.make_node(
                "ReorderOutput",
                [self._blocked[name]],
                [name],
                domain=_DOMAIN,
                channels=self.shape(name)[1],
            )
            self.nodes.append(node)
            self._ordered.add(name)
        return name

    def becomes_blocked(self, name: str) -> str:
        """Return what to call the blocked form of `name`, which the caller is about to make."""
        self._blocked[name] = self._fresh()
        return self._blocked[name]

    def set_blocked(self, name: str, blocked: str) -> None:
        """Note that `blocked` is the blocked form of `name`."""
        self._blocked[name] = blocked

    def copy(self, node: onnx.NodeProto) -> None:
        """Append `node` as it is, which reads and makes values in order."""
        for name in reads(node):
            self.plain(name)
        self.nodes.append(node)
        self._ordered.update(node.output)

    def defer(self, node: onnx.NodeProto) -> None:
        """Append `node`, as `copy` does, only when something reads its result in order."""
        self._deferred[node.output[0]] = node

    def finish(self, outputs: Sequence[str]) -> list[onnx.NodeProto]:
        """Return the nodes, after putting `outputs` in order."""
        for name in outputs:
            self.plain(name)
        return self.nodes

    def op(
        self,
        op_type: str,
        inputs: Sequence[str],
        domain: str = "",
        **attributes: float | str | Sequence[int],
    ) -> str:
        """Append an operator and return its output."""
        made = self._fresh()
        node = onnx.NodeProto(op_type=op_type, domain=domain, input=inputs, output=[made])
        node.attribute.extend(
            onnx.helper.make_attribute(key, value) for key, value in attributes.items()
        )
        self.nodes.append(node)
        return made

    def integers(self, numbers: Sequence[int]) -> str:
        """Return the constant int64 tensor of `numbers`."""
        key = tuple(numbers)
        if key not in self._integers:
            self._integers[key] = self.constant(np.asarray(key, np.int64))
        return self._integers[key]

    def constant(self, array: np.ndarray) -> str:
        """Return a constant with this content."""
        name = self._fresh()
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def spread(self, name: str, strides: Sequence[int]) -> str:
        """Return the blocked image `name` with `stride - 1` zeros behind each element."""
        batch, channels, height, width = self.shape(name)
        repeated = self.op(
            "Upsample", [self.blocked(name)], _DOMAIN, scales=[1, 1, *strides], mode="nearest"
        )
        rows, columns = height * strides[0], width * strides[1] * self.block
        corner = np.zeros((strides[0], strides[1] * self.block), np.float32)
        corner[0, : self.block] = 1
        pattern = self.op("Tile", [self.constant(corner), self.integers((height, width))])
        images = (batch * channels // self.block, rows, columns)
        apart = self.op("Reshape", [repeated, self.integers(images)])
        kept = self.op("Mul", [apart, pattern])
        shape = (batch, channels, rows, columns // self.block)
        return self.op("Reshape", [kept, self.integers(shape)])

    def _fresh(self) -> str:
        self._count += 1
        return f"b{self._count - 1}"


def numbers(node: onnx.NodeProto, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
    """Return the integers of an attribute."""
    for attribute in node.attribute:
        if attribute.name == name:
            return tuple(attribute.ints) or (attribute.i,)
    return default


def reads(node: onnx.NodeProto) -> list[str]:
    """Return what `node` reads, what its subgraphs capture included."""
    names = list(node.input)
    for graph in subgraphs(node):
        for inner in graph.node:
            names += reads(inner)
        names += [value.name for value in graph.output]
    return names
