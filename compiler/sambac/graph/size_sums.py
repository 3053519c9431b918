"""Sizes that are open, as sums: what two of them have in common is seen without their names.

A cache of `past` keys with one more has `past + 1`, which shape inference gives a name of its own.
So `Concat` has the sum of its parts' sizes, a `Reshape` has those that it is given, what is
computed element by element has those of its operands, and whole numbers that are computed from a
`Shape` are followed. What cannot be followed is called by the name that inference gave it; sums are
equal only if all of them are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from math import prod
from typing import TypeAlias

import onnx_ir as ir

from .nodes import input_at, int_attribute, static_shape

Sum: TypeAlias = dict[str, int]
"""How often each name is in a sum, without those that are in it 0 times; "" counts ones."""

ONE: Sum = {"": 1}
_DEEPEST = 64
"""So many operators are followed one behind the other; sizes have fewer."""
_OWN_NUMBERS = ("Identity", "Reshape", "Squeeze", "Unsqueeze")
_LIKE_FIRST = (
    *("Abs", "Cast", "Cos", "Erf", "Exp", "Gelu", "Identity", "IsNaN", "LayerNormalization", "Log"),
    *("LogSoftmax", "Neg", "Not", "RMSNormalization", "Reciprocal", "Relu", "Sigmoid", "Sin"),
    *("Softmax", "Sqrt", "Tanh"),
)
_ELEMENTWISE = (
    *("Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max"),
    *("Min", "Mul", "Or", "Pow", "Sub", "Where"),
)
_REDUCTIONS = ("ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare")
_MATRIX = 2
_LEFT_OVER: Sum = {"": -1}
_WHOLE = (ir.DataType.INT32, ir.DataType.INT64)


class SizeSums:
    """Reads sizes and whole numbers of one graph while it stays as it is.

    Sizes that are called as one of the inputs of `graph` are not followed any further.
    """

    def __init__(self, graph: ir.Graph | ir.Function | None = None) -> None:
        inputs = () if graph is None else graph.inputs
        sizes = (size for value in inputs for size in value.shape or ())
        names = (size.value for size in sizes if isinstance(size, ir.SymbolicDim))
        self._by_name: dict[str, Sum] = {name: {name: 1} for name in names if name is not None}
        self._depth = 0
        self._sizes: dict[tuple[ir.Value, int], Sum | None] = {}
        self._numbers: dict[tuple[ir.Value, int], Sum | None] = {}

    def of(self, value: ir.Value) -> list[Sum | None]:
        """Return the sizes of `value` along all axes; none if its rank is not known."""
        return [self.size(value, axis) for axis in range(len(value.shape or ()))]

    def size(self, value: ir.Value | None, axis: int) -> Sum | None:
        """Return the size of `value` along `axis`, counted from 0; None if it has no name."""
        if value is None or value.shape is None:
            return None
        dim = value.shape[axis]
        if isinstance(dim, int):
            return _sum({"": dim})
        if dim.value is not None and dim.value in self._by_name:
            return self._by_name[dim.value]
        if (value, axis) not in self._sizes:
            found = self._followed(_SIZES, value, axis)
            if dim.value is not None and found is not None:
                self._by_name[dim.value] = found
            named = None if dim.value is None else {dim.value: 1}
            self._sizes[value, axis] = named if found is None else found
        return self._sizes[value, axis]

    def number(self, value: ir.Value | None, index: int = 0) -> Sum | None:
        """Return number `index` of the whole numbers `value`, counted through all axes."""
        if value is None:
            return None
        if value.const_value is not None and not value.is_graph_input():
            content = value.const_value.numpy().reshape(-1)
            whole = content.dtype.kind in "iu" and index < content.size
            return _sum({"": int(content[index])}) if whole else None
        if (value, index) not in self._numbers:
            self._numbers[value, index] = self._followed(_NUMBERS, value, index)
        return self._numbers[value, index]

    def _followed(self, rules: Mapping[str, _Rule], value: ir.Value, at: int) -> Sum | None:
        maker = value.producer()
        if maker is None or maker.domain != "" or self._depth == _DEEPEST:
            return None
        rule = rules.get(maker.op_type)
        if rule is None:
            return None
        self._depth += 1
        try:
            return rule(self, maker, at)
        finally:
            self._depth -= 1


_Rule: TypeAlias = Callable[[SizeSums, ir.Node, int], Sum | None]


def _own(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    return sizes.size(node.inputs[0], axis)


def _of_parts(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Concat."""
    rank = len(node.outputs[0].shape or ())
    along = int_attribute(node, "axis") % rank == axis
    return _together(1, *(sizes.size(each, axis) for each in node.inputs[: None if along else 1]))


def _turned(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Transpose."""
    perm = node.attributes.get("perm")
    order = range(len(node.outputs[0].shape or ()))[::-1] if perm is None else perm.as_ints()
    return sizes.size(node.inputs[0], order[axis])


def _wanted(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Reshape: one that is given, kept, or left over by the others."""
    found = sizes.number(input_at(node, 1), axis)
    if found == _LEFT_OVER:
        return _left_over(sizes, node, axis)
    source = node.inputs[0]
    rank = 0 if source is None or source.shape is None else len(source.shape)
    if found == {} and not int_attribute(node, "allowzero"):
        return sizes.size(source, axis) if axis < rank else None
    given = found is not None and (bool(found.keys() - {""}) or found.get("", 0) > 0)
    return found if given else None


def _left_over(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Reshape that the others leave: of as many numbers as there were."""
    source, result = node.inputs[0], node.outputs[0]
    if source is None or source.shape is None:
        return None
    before, divisor = sizes.of(source), 1
    for other in range(len(result.shape or ())):
        found = None if other == axis else sizes.size(result, other)
        if found in before and found is not None:
            before.remove(found)
        elif other != axis:
            divisor *= _constant(found) or 0
    open_ = [each for each in before if _constant(each) is None]
    parts = prod(_constant(each) or 0 for each in before if each not in open_)
    (one, *more) = open_ or [ONE]
    if one is None or more or not parts or not divisor:
        return None
    counts = {name: count * parts for name, count in one.items()}
    if any(count % divisor for count in counts.values()):
        return None
    return {name: count // divisor for name, count in counts.items()}


def _spread(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of an Expand to as many axes as its input has."""
    source, target = node.inputs[0], input_at(node, 1)
    if source is None or static_shape(target) != (len(source.shape or ()),):
        return None
    size, wanted = sizes.size(source, axis), sizes.number(target, axis)
    return wanted if size == ONE else size if wanted in (size, ONE) else None


def _broadcast(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of what is computed element by element, if all operands but ones have it."""
    rank = len(node.outputs[0].shape or ())
    found = [_aligned(sizes, each, axis - rank) for each in node.inputs]
    return _only(each for each in found if each != ONE)


def _product(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a MatMul of matrices, or of batches of them."""
    rank = len(node.outputs[0].shape or ())
    left, right = node.inputs[:2]
    if any(each is None or len(each.shape or ()) < _MATRIX for each in (left, right)):
        return None
    if axis == rank - 1:
        return _aligned(sizes, right, -1)
    return (
        _aligned(sizes, left, -_MATRIX) if axis == rank - _MATRIX else _broadcast(sizes, node, axis)
    )


def _aligned(sizes: SizeSums, value: ir.Value | None, axis: int) -> Sum | None:
    """Return the size along an axis that is counted from the last, 1 before the first one."""
    if value is None or value.shape is None:
        return None
    at = len(value.shape) + axis
    return ONE if at < 0 else sizes.size(value, at)


def _only(found: Iterable[Sum | None]) -> Sum | None:
    """Return the sum that all are; None if there are several or none."""
    sums = list(found)
    return sums[0] if sums and all(each == sums[0] for each in sums) else None


def _looked_up(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Gather."""
    data, index = node.inputs[:2]
    if data is None or data.shape is None or index is None or index.shape is None:
        return None
    along = int_attribute(node, "axis") % len(data.shape)
    if along <= axis < along + len(index.shape):
        return sizes.size(index, axis - along)
    return sizes.size(data, axis if axis < along else axis - len(index.shape) + 1)


def _counting(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Range by steps of 1, which ends where it begins or behind."""
    del axis
    begin, end, step = (sizes.number(each) for each in node.inputs)
    found = _together(-1, end, begin) if step == ONE else None
    return found if found is not None and all(count > 0 for count in found.values()) else None


def _reduced(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a reduction that keeps all axes: one that is open is none of its own.

    That is so where its axes are known: else one that is open may be 1.
    """
    axes = input_at(node, 1)
    is_known = axes is None or (axes.const_value is not None and not axes.is_graph_input())
    return _own(sizes, node, axis) if is_known and int_attribute(node, "keepdims", 1) else None


def _sliced(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a Slice along an axis that it takes whole."""
    axes = input_at(node, 3)
    rank, named = len(node.outputs[0].shape or ()), static_shape(axes)
    if axes is None or named is None:
        return None
    cut = [_constant(sizes.number(axes, at)) for at in range(named[0])]
    whole = None not in cut and all(each % rank != axis for each in cut if each is not None)
    return _own(sizes, node, axis) if whole else None


def _split(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of a part of a Split along another axis."""
    along = int_attribute(node, "axis") % len(node.outputs[0].shape or (0,))
    return None if along == axis else _own(sizes, node, axis)


def _with_ones(sizes: SizeSums, node: ir.Node, axis: int) -> Sum | None:
    """Return the size of an Unsqueeze along an axis that was there before."""
    axes = input_at(node, 1)
    rank, named = len(node.outputs[0].shape or ()), static_shape(axes)
    if axes is None or named is None or not rank:
        return None
    new = [_constant(sizes.number(axes, at)) for at in range(named[0] if named else 1)]
    if None in new:
        return None
    old = [at for at in range(rank) if at not in {(each or 0) % rank for each in new}]
    return _own(sizes, node, old.index(axis)) if axis in old else ONE


def _same(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    return sizes.number(node.inputs[0], index)


def _cast(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Cast to what holds every size: others round or limit it."""
    return _same(sizes, node, index) if int_attribute(node, "to") in _WHOLE else None


def _added(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a sum or a difference of whole numbers of at most one axis."""
    if any(each is not None and len(each.shape or ()) > 1 for each in node.inputs):
        return None
    first, second = (sizes.number(each, index if _many(each) else 0) for each in node.inputs)
    return _together(-1 if node.op_type == "Sub" else 1, first, second)


def _many(value: ir.Value | None) -> bool:
    return value is not None and static_shape(value) not in ((), (1,))


def _joined(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Concat, whose parts have one axis."""
    for part in node.inputs:
        shape = static_shape(part)
        if shape is None or len(shape) != 1:
            return None
        if index < shape[0]:
            return sizes.number(part, index)
        index -= shape[0]
    return None


def _counted(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Shape."""
    source = node.inputs[0]
    axes = range(len(source.shape or ()) if source is not None else 0)
    axes = axes[int_attribute(node, "start") :]
    return sizes.size(source, axes[index]) if index < len(axes) else None


def _cut(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Slice of whole numbers of one axis, by steps of 1."""
    shape, steps = static_shape(node.inputs[0]), input_at(node, 4)
    begin, end = (_constant(sizes.number(input_at(node, at))) for at in (1, 2))
    if shape is None or len(shape) != 1 or begin is None or end is None:
        return None
    if steps is not None and sizes.number(steps) != ONE:
        return None
    places = range(shape[0])[begin:end]
    return sizes.number(node.inputs[0], places[index]) if index < len(places) else None


def _gathered(sizes: SizeSums, node: ir.Node, index: int) -> Sum | None:
    """Return number `index` of a Gather from whole numbers of one axis."""
    shape, place = static_shape(node.inputs[0]), _constant(sizes.number(node.inputs[1], index))
    if shape is None or len(shape) != 1 or place is None or not -shape[0] <= place < shape[0]:
        return None
    return sizes.number(node.inputs[0], place % shape[0])


def _constant(found: Sum | None) -> int | None:
    """Return the number that a sum is, if it has no names."""
    return None if found is None or found.keys() - {""} else found.get("", 0)


def _together(sign: int, first: Sum | None, *others: Sum | None) -> Sum | None:
    """Return the sum, or the difference."""
    if first is None:
        return None
    total = Counter(first)
    for other in others:
        if other is None:
            return None
        for name, count in other.items():
            total[name] += sign * count
    return _sum(total)


def _sum(counts: Mapping[str, int]) -> Sum:
    return {name: count for name, count in counts.items() if count}


_SIZES: Mapping[str, _Rule] = {
    **dict.fromkeys(_LIKE_FIRST, _own),
    **dict.fromkeys(_ELEMENTWISE, _broadcast),
    **dict.fromkeys(_REDUCTIONS, _reduced),
    "Concat": _of_parts,
    "Expand": _spread,
    "Gather": _looked_up,
    "MatMul": _product,
    "Range": _counting,
    "Reshape": _wanted,
    "Slice": _sliced,
    "Split": _split,
    "Transpose": _turned,
    "Unsqueeze": _with_ones,
}
_NUMBERS: Mapping[str, _Rule] = {
    **dict.fromkeys(_OWN_NUMBERS, _same),
    "Add": _added,
    "Cast": _cast,
    "Concat": _joined,
    "Gather": _gathered,
    "Shape": _counted,
    "Slice": _cut,
    "Sub": _added,
}
