"""Let a run fail, with the shape in its message, where onnxruntime would end the process.

    f(x)  ->  f(Reshape(x, sizes + (sizes == 0))), sizes = Shape(x)

for operators whose kernels divide by a size, or read from nothing, where an axis is open or known
to have no elements, and is given none. Reshape is the tensor itself where there are some, and an
error where not:

    Attention            heads
    Conv                 channels, where the image gets a margin (it does not end)
    ConvTranspose        an axis of a volume
    GRU, LSTM            steps (of a GRU), examples
    QuantizeLinear, DequantizeLinear by blocks   the axis of the blocks, and those behind it
    STFT                 the window
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, text_attribute
from sambac.passes.rewriting import Rule, RulePass

_Places = Iterator[tuple[int, int]]


def _at(*places: tuple[int, int]) -> Callable[[ir.Node], _Places]:
    """Return what yields these operands and axes of any node."""
    return lambda node: iter(places)


def _heads(node: ir.Node) -> _Places:
    for index in range(3):
        x = input_at(node, index)
        if x is not None and x.shape is not None and len(x.shape) == 4:
            yield index, 1


def _channels(node: ir.Node) -> _Places:
    pads = node.attributes.get("pads")
    if text_attribute(node, "auto_pad", "NOTSET") != "NOTSET" or (pads and any(pads.as_ints())):
        yield 0, 1


def _volume(node: ir.Node) -> _Places:
    x = input_at(node, 0)
    rank = 0 if x is None or x.shape is None else len(x.shape)
    if rank > 4:
        yield from ((0, axis) for axis in range(2, rank))


def _blocks(node: ir.Node) -> _Places:
    x = input_at(node, 0)
    if x is None or x.shape is None or not int_attribute(node, "block_size"):
        return
    rank = len(x.shape)
    yield from ((0, axis) for axis in range(int_attribute(node, "axis", 1) % rank, rank))


_DEADLY: Mapping[str, Callable[[ir.Node], _Places]] = {
    "Attention": _heads,
    "Conv": _channels,
    "ConvTranspose": _volume,
    "DequantizeLinear": _blocks,
    "GRU": _at((0, 0), (0, 1), (0, 2)),
    "LSTM": _at((0, 1)),
    "QuantizeLinear": _blocks,
    "STFT": _at((2, 0)),
}
"""Which axes of which operands have to have elements, by operator."""


def _guarded(editor: Editor, node: ir.Node) -> str | None:
    """Guard the axes of `node` that have to have elements, and may have none."""
    axes: dict[int, list[int]] = {}
    for index, axis in _DEADLY[node.op_type](node):
        x = input_at(node, index)
        if x is not None and x.shape is not None and _may_be_empty(x.shape[axis]):
            axes.setdefault(index, []).append(axis)
    wanted = {index: found for index, found in axes.items() if not _is_guarded(node.inputs[index])}
    for index, found in wanted.items():
        x = node.inputs[index]
        assert x is not None
        node.replace_input_with(index, _with_elements(editor, x, found))
    return None if wanted else "all such axes have elements"


def _may_be_empty(size: int | ir.SymbolicDim) -> bool:
    return not isinstance(size, int) or size == 0


def _is_guarded(x: ir.Value | None) -> bool:
    """Tell whether `x` is what this pass has made: its size is that of what it is made of."""
    producer = None if x is None else x.producer()
    if producer is None or producer.op_type != "Reshape" or producer.inputs[0] is None:
        return False
    return x is not None and producer.inputs[0].shape == x.shape


def _with_elements(editor: Editor, x: ir.Value, axes: list[int]) -> ir.Value:
    assert x.shape is not None
    sizes = editor.op("Shape", x)
    none = np.asarray([0 if axis in axes else -1 for axis in range(len(x.shape))], np.int64)
    missing = editor.op("Equal", sizes, editor.constant(none, f"{x.name}_none"))
    more = editor.op("Cast", missing, to=int(ir.DataType.INT64))
    return editor.op("Reshape", x, editor.op("Add", sizes, more), like=x)


class RefuseEmpty(RulePass):
    """Guard operands of which onnxruntime would end the process if they had no elements."""

    name: ClassVar[str] = "refuse_empty"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = dict.fromkeys(_DEADLY, (_guarded,))
