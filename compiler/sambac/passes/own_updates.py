"""New values of states that no operator makes over what it still reads.

    queue' = ScatterND(queue, i, v)  ->  queue' = -(-ScatterND(queue, i, v))

A new value has the memory of the old one. An operator that reads the old value itself may write
there only if it does so element by element; any other makes its result elsewhere, to be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.builder import Builder
from sambac.ops import is_elementwise

from .base import Pass


@dataclass(frozen=True)
class OwnUpdates(Pass):
    """Copy the outputs named by the keys of `updates`, which overwrite the values, if need be."""

    name: ClassVar[str] = "own_updates"
    updates: Mapping[str, str]

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert two operators that undo each other behind each such output of `model`."""
        found = [
            (position, value)
            for position, value in enumerate(model.graph.outputs)
            if _writes_over(value, self.updates.get(str(value.name)))
        ]
        builder = Builder(model) if found else None
        for position, value in found:
            assert builder is not None
            model.graph.outputs[position] = _copied(builder, value)
        return ir.passes.PassResult(model, modified=bool(found))


def _writes_over(value: ir.Value, old: str | None) -> bool:
    """Tell whether what makes `value` reads `old` in any way but element by element."""
    maker = value.producer()
    if maker is None or old is None:
        return False
    read = [item for item in maker.inputs if item is not None and item.name == old]
    alike = is_elementwise(maker.domain, maker.op_type) and all(
        item.shape == value.shape for item in read
    )
    return bool(read) and not alike


def _copied(b: Builder, value: ir.Value) -> ir.Value:
    """Return a value of the name of `value` that equals it to the last bit."""
    b.origin = value.producer()
    op = _own_inverse(value.dtype)
    name, copy = str(value.name), b.op(op, b.op(op, value))
    value.name, copy.name = copy.name, name
    return copy


def _own_inverse(dtype: ir.DataType | None) -> str:
    if dtype is None or dtype.is_floating_point():
        return "Neg"
    return "Not" if dtype == ir.DataType.BOOL else "BitwiseNot"
