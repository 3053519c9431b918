"""Sizes that are open, as sums: what two of them have in common is seen without their names.

A cache of `past` keys with one more has `past + 1`, which shape inference gives a name of its own.
So `Concat` has the sum of its parts' sizes, and whole numbers that are computed from a `Shape` are
followed. What cannot be followed is called by the name that inference gave it; sums are equal only
if all of them are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import onnx_ir as ir

from .nodes import input_at, int_attribute

Sum: TypeAlias = "dict[str, int]"
"""How often each name is in a sum, without those that are in it 0 times; "" counts ones."""

_OWN_SIZES = ("Cast", "Identity")
_OWN_NUMBERS = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")


def size_of(value: ir.Value, axis: int) -> Sum | None:
    """Return the size of `value` along `axis`, None if it has no name."""
    if value.shape is None:
        return None
    dim = value.shape[axis]
    if isinstance(dim, int):
        return _sum({"": dim})
    maker = value.producer()
    if maker is not None and maker.domain == "":
        if maker.op_type in _OWN_SIZES and maker.inputs[0] is not None:
            return size_of(maker.inputs[0], axis)
        if maker.op_type == "Concat" and int_attribute(maker, "axis") % len(value.shape) == axis:
            return _together(1, *(size_of(part, axis) for part in maker.inputs if part is not None))
    return None if dim.value is None else _sum({dim.value: 1})


def number_of(value: ir.Value | None, index: int = 0) -> Sum | None:
    """Return number `index` of the whole numbers `value`, counted through all axes."""
    if value is None:
        return None
    if value.const_value is not None and not value.is_graph_input():
        return _sum({"": int(value.const_value.numpy().reshape(-1)[index])})
    maker = value.producer()
    if maker is None or maker.domain != "":
        return None
    if maker.op_type in _OWN_NUMBERS:
        return number_of(maker.inputs[0], index)
    rule = _NUMBERS.get(maker.op_type)
    return None if rule is None else rule(maker, index)


def _added(sign: int, node: ir.Node, index: int) -> Sum | None:
    first, second = (number_of(value, index if _many(value) else 0) for value in node.inputs)
    return _together(sign, first, second)


def _many(value: ir.Value | None) -> bool:
    return value is not None and value.shape is not None and tuple(value.shape) not in ((), (1,))


def _joined(node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Concat, whose parts have one axis."""
    for part in node.inputs:
        if part is None or part.shape is None or len(part.shape) != 1:
            return None
        size = part.shape[0]
        if not isinstance(size, int):
            return None
        if index < size:
            return number_of(part, index)
        index -= size
    return None


def _sized(node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Shape."""
    source = node.inputs[0]
    if source is None or source.shape is None:
        return None
    axes = range(len(source.shape))[int_attribute(node, "start") :]
    return size_of(source, axes[index]) if index < len(axes) else None


def _gathered(node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Gather from whole numbers of one axis."""
    source, places = node.inputs[0], input_at(node, 1)
    place = number_of(places, index)
    if source is None or source.shape is None or len(source.shape) != 1 or place is None:
        return None
    size = source.shape[0]
    if place.keys() - {""} or not isinstance(size, int):
        return None
    return number_of(source, place.get("", 0) % size)


def _together(sign: int, first: Sum | None, *others: Sum | None) -> Sum | None:
    """Return the sum, or the difference."""
    total: Counter[str] = Counter(first)
    for other in others:
        if first is None or other is None:
            return None
        for name, count in other.items():
            total[name] += sign * count
    return None if first is None else _sum(total)


def _sum(counts: Mapping[str, int]) -> Sum:
    return {name: count for name, count in counts.items() if count}


_NUMBERS: Mapping[str, Callable[[ir.Node, int], Sum | None]] = {
    "Add": partial(_added, 1),
    "Sub": partial(_added, -1),
    "Concat": _joined,
    "Gather": _gathered,
    "Shape": _sized,
}
