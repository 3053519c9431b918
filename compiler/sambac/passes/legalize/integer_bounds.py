"""Between which numbers the whole numbers of a value lie, as far as operators tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.graph.nodes import input_at, int_attribute
from sambac.passes.rewriting import constant, present

Bounds: TypeAlias = tuple[int, int]
"""The least and the largest number."""

_MOST_ELEMENTS = 1 << 16
"""Constants of more are not looked at: finding out would cost more than it gains."""

_DEPTH = 16
"""So many operators back is looked."""

_SIZES = (0, 2**31 - 1)
_WHOLE = {
    ir.DataType.BOOL: (0, 1),
    **{
        getattr(ir.DataType, name): (
            int(np.iinfo(name.lower()).min),
            int(np.iinfo(name.lower()).max),
        )
        for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
    },
}


def bounds(value: ir.Value) -> Bounds:
    """Return the bounds of `value`, a tensor of whole numbers or truth values."""
    return _bounds(value, _DEPTH, {})


def _bounds(value: ir.Value, depth: int, found: dict[ir.Value, Bounds]) -> Bounds:
    """Return the bounds of `value`; those that are `found` on the way are looked for once."""
    if value not in found:
        found[value] = _looked_for(value, depth, found)
    return found[value]


def _looked_for(value: ir.Value, depth: int, found: dict[ir.Value, Bounds]) -> Bounds:
    assert value.dtype is not None
    whole = _WHOLE[value.dtype]
    content = constant(value)
    if content is not None and content.size <= _MOST_ELEMENTS:
        return (int(content.min()), int(content.max())) if content.size else (0, 0)
    node = value.producer()
    if node is None or node.domain != "" or depth == 0:
        return whole
    if node.op_type in _PLACES:
        return _SIZES
    operands = _read(node)
    if not operands or any(operand.dtype not in _WHOLE for operand in operands):
        return whole
    given = [_bounds(operand, depth - 1, found) for operand in operands]
    ends = _of_all(given) if node.op_type in _MOVED else _COMPUTED[node.op_type](*given)
    return ends if whole[0] <= ends[0] and ends[1] <= whole[1] else whole


def largest(value: ir.Value) -> int:
    """Return what no number of `value` is farther from 0 than."""
    return max(map(abs, bounds(value)))


def _read(node: ir.Node) -> tuple[ir.Value, ...]:
    """Return what the numbers of `node` come from; nothing of operators that are not known."""
    if node.op_type == "Where":
        return present(node.inputs[1:])
    if node.op_type in ("Concat", *_COMPUTED):
        # The remainder of C has the sign of what is divided.
        return () if int_attribute(node, "fmod") else present(node.inputs)
    first = input_at(node, 0)
    return (first,) if node.op_type in _MOVED and first is not None else ()


def _of_all(given: list[Bounds]) -> Bounds:
    return min(low for low, _ in given), max(high for _, high in given)


def _product(x: Bounds, y: Bounds) -> Bounds:
    ends = [one * other for one in x for other in y]
    return min(ends), max(ends)


def _quotient(x: Bounds, y: Bounds) -> Bounds:
    if y[0] > 0:
        return min(-(-x[0] // y[0]), 0), max(x[1] // y[0], 0)
    farthest = max(map(abs, x))
    return -farthest, farthest


def _remainder(x: Bounds, y: Bounds) -> Bounds:
    return (0, y[1] - 1) if y[0] > 0 else (-max(map(abs, y)), max(map(abs, y)))


_PLACES = frozenset({"ArgMax", "ArgMin", "NonZero", "Shape"})
_MOVED = frozenset(
    {
        *("Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice"),
        *("Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    }
)
_COMPUTED: Mapping[str, Callable[[Bounds, Bounds], Bounds]] = {
    "Add": lambda x, y: (x[0] + y[0], x[1] + y[1]),
    "Div": _quotient,
    "Mod": _remainder,
    "Mul": _product,
    "Sub": lambda x, y: (x[0] - y[1], x[1] - y[0]),
}
