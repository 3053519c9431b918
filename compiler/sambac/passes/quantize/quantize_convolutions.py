"""Convolutions of bytes, for images whose ranges are known.

    y = Conv(x, W, b)  ->  q = QuantizeLinear(x)
                           c = QLinearConv(q, codes of W, b)
                           y = DequantizeLinear(c)

with a scale for each output channel of W. Where nothing else reads it, a Relu behind the
convolution, or a Clip from 0 on, goes into it: the range of its result begins at 0. Codes of W are
unsigned, 128 stands for 0, as in `quantize_products`.

Each value has one scale, wherever it is read. What then stands between two convolutions,
QuantizeLinear(DequantizeLinear(c)), is taken out by `join_quantized`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import is_absent
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, static_shape
from sambac.numerics.integers import MIDDLE, ByteScale, by_channel, relative_error
from sambac.passes.base import Pass
from sambac.passes.rewriting import constant, derived_name, has_one_reader, scalar

from .quantized_layers import LEAST, LayerNote

_LEAST_AXES = 3
_LARGEST_BIAS = 1 << 29
"""Sums of 49,000 products of bytes fit on top of it into 32 bits."""


@dataclass(frozen=True)
class QuantizeConvolutions(Pass):
    """Let convolutions with constant filters work on bytes, but for the nodes in `but`.

    `scales` are those of values by name; what has none is not known well enough.
    """

    name: ClassVar[str] = "quantize_convolutions"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Conv"})
    scales: Mapping[str, ByteScale] = field(default_factory=dict, hash=False)
    but: frozenset[str] = frozenset()

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Quantise the convolutions of the main graph."""
        editor = Editor(model)
        found = [
            node
            for node in convolutions(model.graph, self.but)
            if {node.inputs[0].name, settled(node).name} <= self.scales.keys()  # type: ignore[union-attr]
        ]
        for node in found:
            self._put(editor, node)
        return ir.passes.PassResult(model, modified=bool(found))

    def _put(self, editor: Editor, node: ir.Node) -> None:
        image, filters = node.inputs[0], node.inputs[1]
        assert image is not None
        assert filters is not None
        result = settled(node)
        before, after = self.scales[str(image.name)], self.scales[str(result.name)]
        weights = constant(filters)
        assert weights is not None
        coded = by_channel(weights, axis=0, least=_least_scales(node, before))
        editor.rewrite(node)
        name = derived_name(filters, "int8")
        codes = editor.initializer(coded.codes, name, [filters])
        scales = editor.initializer(coded.scales, derived_name(filters, "scales"), [filters])
        # One for all channels, as sections know what small constants hold, and only those.
        middle = np.asarray(MIDDLE, np.uint8)
        bias = _bias(editor, node, coded.scales * np.float32(before.scale))
        conv = editor.op(
            "QLinearConv",
            quantized(editor, image, before),
            *operands(before),
            *(codes, scales, middle),
            *operands(after),
            *(() if bias is None else (bias,)),
            like=ir.val("", ir.DataType.UINT8, result.shape),
            **{key: attr.value for key, attr in node.attributes.items()},
        )
        error = relative_error(coded.array(), weights)
        row = LayerNote(str(node.name), node.op_type, "int8", f"{before.scale:.3g}", error)
        row.note(conv.producer())
        last = result.producer()
        assert last is not None
        editor.replace(last, "DequantizeLinear", conv, *operands(after))
        if last is not node:
            editor.remove(node)


def convolutions(graph: ir.Graph, but: Collection[str] = ()) -> Iterator[ir.Node]:
    """Yield the convolutions of `graph` that can be quantised, in order, without those in `but`."""
    for node in tuple(graph):
        if node.domain == "" and node.op_type == "Conv" and node.name not in but:
            image, filters, bias = (input_at(node, index) for index in range(3))
            if image is None or filters is None or image.dtype != ir.DataType.FLOAT:
                continue
            if image.is_initializer():
                continue  # nothing of it comes in a run
            if not _is_weight(filters) or not (bias is None or _is_weight(bias)):
                continue
            if (
                filters.shape is not None
                and len(filters.shape) >= _LEAST_AXES
                and _pays(node, filters)
            ):
                yield node


def _pays(node: ir.Node, filters: ir.Value) -> bool:
    """Tell whether a convolution of bytes takes less time than one of float32.

    It does where images are read pixel by pixel, where each channel has its own filter, for which
    there is a kernel, and for sums as long as those of products. Shorter windows are taken apart
    number by number: MobileNetV2 takes 0.9 of the time of one thread if its first layer, three
    channels in windows of 3x3, stays in float32. What else than a convolution reads the result
    wants bytes: a MaxPool behind the like of it makes three times the time of SqueezeNet.
    """
    _, channels, *window = static_shape(filters) or (0, 0)
    short = channels > 1 and 1 < prod(window) < LEAST / channels
    readers = settled(node).consumers()
    return not (short and readers and all(each.op_type == "Conv" for each in readers))


def settled(node: ir.Node) -> ir.Value:
    """Return the result of `node`, behind a Relu or a Clip from 0 on that alone reads it."""
    result = node.outputs[0]
    if not has_one_reader(result):
        return result
    (reader,) = result.consumers()
    if reader.domain != "" or reader.graph is not node.graph:
        return result
    ramp = reader.op_type == "Relu"
    return reader.outputs[0] if ramp or _is_clip(reader) else result


def _is_clip(node: ir.Node) -> bool:
    """Tell whether `node` is a Clip from 0 on, whose upper end is known if there is one."""
    if node.op_type != "Clip" or scalar(input_at(node, 1)) != 0.0:
        return False
    high = input_at(node, 2)
    end = np.inf if high is None else scalar(high)
    return end is not None and end >= 0


def quantized(editor: Editor, value: ir.Value, scale: ByteScale) -> ir.Value:
    """Return the codes of `value`."""
    like = ir.val("", ir.DataType.UINT8, value.shape)
    return editor.op("QuantizeLinear", value, *operands(scale), like=like)


def operands(scale: ByteScale) -> tuple[np.ndarray, np.ndarray]:
    """Return a scale and its zero as operators read them."""
    return np.asarray(scale.scale, np.float32), np.asarray(scale.zero, np.uint8)


def _least_scales(node: ir.Node, image: ByteScale) -> np.ndarray | float:
    """Return the scales of filters from which on the bias of `node` fits into whole numbers.

    Filters may be all zeros, or nearly, and have a bias: that then decides.
    """
    bias = constant(input_at(node, 2))
    if bias is None:
        return 0.0
    return np.abs(bias.astype(np.float64)) / (image.scale * _LARGEST_BIAS)


def _bias(editor: Editor, node: ir.Node, scales: np.ndarray) -> ir.Value | None:
    """Return the bias of `node` in whole numbers of these scales, None if there is none."""
    value = input_at(node, 2)
    content = constant(value)
    if value is None or content is None:
        return None
    limits = np.iinfo(np.int32)
    whole = np.clip(np.rint(content.astype(np.float64) / scales), limits.min, limits.max)
    name = derived_name(value, "int32")
    return editor.initializer(whole.astype(np.int32), name, [value])


def _is_weight(value: ir.Value) -> bool:
    """Tell whether `value` is a constant of finite float32 that nobody can override."""
    tensor = value.const_value
    if value.dtype != ir.DataType.FLOAT or value.is_graph_input() or is_absent(tensor):
        return False
    content = constant(value)
    return content is not None and bool(np.isfinite(content).all())
