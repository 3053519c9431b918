"""Weights of models that come quantised, as unsigned bytes: products with those are exact.

Processors before VNNI add two products of unsigned and signed bytes up in 16 bits, which saturate:
255 x 127, twice, is 32,767 there. Their kernels for two unsigned bytes widen first. With 128 more
in each weight and in what stands for 0 all differences stay what they are:

    MatMulInteger(x, w, a, b)      ->  MatMulInteger(x, w + 128, a, b + 128)   also QLinearConv ...
    DequantizeLinear(w, scale, b)  ->  DequantizeLinear(w + 128, scale, b + 128)

The latter since onnxruntime makes products of bytes of them. Weights up to 64 stay: no pair of
their products is too large. So do those that meet signed data in an operator of its own, whose
kernels are exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, static_shape
from sambac.numerics.integers import MIDDLE
from sambac.passes.base import Pass
from sambac.passes.rewriting import constant, derived_name

_SMALL = 64
"""255 x 64, twice, is below 32,767."""


class _Places(NamedTuple):
    """Where an operator reads weights, and what stands for their 0."""

    weights: int
    zero: int


_PLACES: Mapping[str, tuple[_Places, ...]] = {
    "DequantizeLinear": (_Places(0, 2),),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulInteger"), (_Places(1, 3),)),
    "DynamicQuantizeLSTM": (_Places(1, 9), _Places(2, 11)),
    "MatMulIntegerToFloat": (_Places(1, 5),),
    "QAttention": (_Places(1, 7),),
    **dict.fromkeys(("QGemm", "QLinearConv", "QLinearMatMul"), (_Places(3, 5),)),
}
_PRODUCTS = ("Conv", "Gemm", "MatMul")
_NOTE = "sambac.unsigned"


@dataclass
class _Shifts:
    """Puts what is 128 more, once for each constant."""

    editor: Editor
    known: dict[ir.Value, ir.Value] = field(default_factory=dict)

    def shifted(self, value: ir.Value) -> ir.Value:
        content = constant(value)
        if content is None:
            return self._computed(value)
        if value not in self.known:
            more = _more(content)
            if more.size == 1:
                return self.editor.constant(more)
            name = derived_name(value, "unsigned")
            self.known[value] = self.editor.initializer(more, name, [value])
        return self.known[value]

    def _computed(self, value: ir.Value) -> ir.Value:
        op, whole = self.editor.op, ir.val("", ir.DataType.INT32, value.shape)
        wide = op("Cast", value, like=whole, to=int(ir.DataType.INT32))
        more = op("Add", wide, np.asarray(MIDDLE, np.int32), like=whole)
        narrow = ir.val("", ir.DataType.UINT8, value.shape)
        return op("Cast", more, like=narrow, to=int(ir.DataType.UINT8))


def _more(codes: Array) -> Array:
    return (codes.astype(np.int16) + MIDDLE).astype(np.uint8)


def shifted_places(node: ir.Node) -> tuple[int, ...]:
    """Return where `node` reads constant weights that became unsigned, and what is their 0."""
    return tuple(map(int, node.metadata_props.get(_NOTE, "").split()))


@dataclass(frozen=True)
class UnsignedWeights(Pass):
    """Let products of bytes read unsigned weights."""

    name: ClassVar[str] = "unsigned_weights"
    operators: ClassVar[frozenset[str]] = frozenset(_PLACES)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite `model` in place, subgraphs included."""
        shifts, modified = _Shifts(Editor(model)), False
        for graph in tuple(model.graphs()):
            for node in tuple(graph):
                all_places = _PLACES.get(node.op_type, ())
                if any(_may_saturate(node, input_at(node, at)) for at, _ in all_places):
                    # All of them: an operator's weights have one type.
                    for places in all_places:
                        modified |= _rewritten(shifts, node, places)
        return ir.passes.PassResult(model, modified=modified)


def _rewritten(shifts: _Shifts, node: ir.Node, places: _Places) -> bool:
    """Let `node` read unsigned weights, if it reads signed ones."""
    weights, zero = input_at(node, places.weights), input_at(node, places.zero)
    if weights is None or weights.dtype != ir.DataType.INT8:
        return False
    shape = () if node.op_type != "DequantizeLinear" else static_shape(node.inputs[1])
    if shape is None and zero is None:
        return False
    shifts.editor.rewrite(node)
    unsigned = shifts.shifted(weights)
    if zero is not None:
        middle = shifts.shifted(zero)
    else:
        middle = shifts.editor.constant(np.full(shape or (), MIDDLE, np.uint8))
    node.resize_inputs(max(len(node.inputs), places.zero + 1))
    node.replace_input_with(places.weights, unsigned)
    node.replace_input_with(places.zero, middle)
    if constant(weights) is not None:
        node.metadata_props[_NOTE] = " ".join(map(str, (*shifted_places(node), *places)))
    return True


def _may_saturate(node: ir.Node, weights: ir.Value | None) -> bool:
    """Tell whether `weights` are signed and may be too large where `node` has them multiplied."""
    if weights is None or weights.dtype != ir.DataType.INT8:
        return False
    content = constant(weights)
    if content is not None and (
        not content.size or np.abs(content.astype(np.int16)).max() <= _SMALL
    ):
        return False
    if node.op_type == "DequantizeLinear":
        return content is not None or _is_input_of_product(node, weights)
    data = node.inputs[0]
    return data is None or data.dtype != ir.DataType.INT8


def _is_input_of_product(node: ir.Node, weights: ir.Value) -> bool:
    """Tell whether a product reads what `node` makes of an input; its data onnxruntime shifts."""
    readers = [use.node for use in node.outputs[0].uses()]
    return weights.producer() is None and any(reader.op_type in _PRODUCTS for reader in readers)
