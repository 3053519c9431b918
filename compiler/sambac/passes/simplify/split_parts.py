"""Parts that are told apart along an axis of their own, by a Split where they lie.

    T(Reshape(x, [.., n, w..]))[0], .. [n - 1]  ->  T'(Reshape(x_0, [.., w..])), .. T'(..)

with x [.., n * w], x_0, .. = Split(x), T any order of axes, those of size 1 put in or left out, and
each part picked by a Gather of one index, a Slice of length 1, or one Split for all. These are
queries, keys and values of one projection: as they were, all are moved as one, and then cut out of
the result. Now each is moved alone, or stays where attention reads tokens (`fuse_attention`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar, TypeAlias

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, same_size, supersede
from sambac.passes.rewriting import Rule, RulePass, integers, made_beside

from .merge_chains import RESHAPES, permutation, target_shape

_SIZES_ARE_INPUTS = 13
Size: TypeAlias = int | ir.SymbolicDim


@dataclass(frozen=True)
class _Pick:
    """Part `index` along `axis` of what is read, as `value`."""

    value: ir.Value
    axis: int
    index: int


@dataclass(frozen=True)
class _PartsAxis:
    """The axis of x that holds the parts, their number, and the axes of one of them."""

    at: int
    count: int
    width: tuple[int, ...]


def split(editor: Editor, node: ir.Node) -> str | None:
    """Gather(T(Reshape(x)), 0), Gather(T(Reshape(x)), 1) -> T'(Reshape(x_0)), T'(Reshape(x_1))."""
    x, made = node.inputs[0], node.outputs[0]
    if x is None or x.shape is None or made.shape is None or editor.opset < 5:
        return "the shape is not known"
    order, moved = _moved(made)
    readers = dict.fromkeys(moved.consumers())
    picks = [pick for reader in readers for pick in _picks(reader)]
    if moved.is_graph_output() or not all(any(_picks(reader)) for reader in readers):
        return "it is read as a whole"
    if any(pick.value.is_graph_output() for pick in picks if not made_beside(pick.value, node)):
        return "a branch or a body gives a part out, and has to make it"
    chosen = {order[pick.axis] for pick in picks}
    label = chosen.pop() if len(chosen) == 1 else None
    if label is None or {pick.index for pick in picks} != {*range(_number(made.shape[label]))}:
        return "not all parts along one axis are picked"
    axis = _axis(x.shape, made.shape, label)
    if axis is None:
        return "the parts do not lie side by side"
    rest = [each for each in order if each is not None and each != label]
    inner = [made.shape[each] for each in sorted(rest)]
    turn = [sorted(rest).index(each) for each in rest]
    if _open(inner) > 1 or any(target_shape(pick.value) is None for pick in picks):
        return "the shape of a part is not known"
    parts = _parts(editor, x, axis)
    for pick in picks:
        part, made = parts[pick.index], pick.value
        if turn != sorted(turn):
            like = ir.Value(type=made.type, shape=ir.Shape(inner))
            part = editor.op("Reshape", part, [*map(_number, inner)], like=like)
            part = editor.op("Transpose", part, perm=turn)
        supersede(made, editor.op("Reshape", part, [*(target_shape(made) or ())], like=made))
    for reader in readers:
        editor.remove(reader)
    return None


def _moved(value: ir.Value) -> tuple[list[int | None], ir.Value]:
    """Return what orders of axes make of `value`, and the axis of `value` at each of its own.

    Axes of size 1 are none in particular.
    """
    order = [None if size == 1 else axis for axis, size in enumerate(value.shape or ())]
    while len(value.uses()) == 1 and not value.is_graph_output():
        reader = value.consumers()[0]
        if reader.domain or reader.op_type not in (*RESHAPES, "Transpose"):
            break
        made = reader.outputs[0]
        if reader.op_type == "Transpose":
            turn = permutation(reader)
            if turn is None:
                break
            order = [order[axis] for axis in turn]
        else:
            if (
                value.shape is None
                or made.shape is None
                or not _same([*value.shape], [*made.shape])
            ):
                break
            wide = iter([axis for axis in order if axis is not None])
            order = [None if size == 1 else next(wide) for size in made.shape]
        value = made
    return order, value


def _picks(reader: ir.Node) -> Iterator[_Pick]:
    """Yield which parts `reader` picks of what it reads first, if that is all it does."""
    read, made = reader.inputs[0], reader.outputs[0]
    kind = _PICKS.get(reader.op_type) if not reader.domain else None
    if kind is None or read is None or read.shape is None or made.shape is None:
        return
    if any(value is read for value in reader.inputs[1:]):
        return
    yield from kind(reader, read.shape)


def _gathered(reader: ir.Node, shape: ir.Shape) -> Iterator[_Pick]:
    axis, indices = int_attribute(reader, "axis", 0) % len(shape), integers(reader.inputs[1])
    size = shape[axis]
    if indices is None or len(indices) != 1 or not isinstance(size, int):
        return
    if -size <= indices[0] < size:  # onnxruntime refuses others, and so does what stays
        yield _Pick(reader.outputs[0], axis, indices[0] % size)


def _sliced(reader: ir.Node, shape: ir.Shape) -> Iterator[_Pick]:
    starts, axes = integers(input_at(reader, 1)), integers(input_at(reader, 3))
    steps = integers(input_at(reader, 4))
    if starts is None or axes is None or len(axes) != 1 or (steps or (1,)) != (1,):
        return
    axis = axes[0] % len(shape)
    size, length = shape[axis], (reader.outputs[0].shape or ())[axis]
    if isinstance(size, int) and length == 1 and size > 1 and -size <= starts[0] < size:
        yield _Pick(reader.outputs[0], axis, starts[0] % size)


def _split(reader: ir.Node, shape: ir.Shape) -> Iterator[_Pick]:
    axis = int_attribute(reader, "axis", 0) % len(shape)
    ones = all(value.shape is not None and value.shape[axis] == 1 for value in reader.outputs)
    if ones and shape[axis] == len(reader.outputs):
        for index, value in enumerate(reader.outputs):
            yield _Pick(value, axis, index)


_PICKS: Mapping[str, Callable[[ir.Node, ir.Shape], Iterator[_Pick]]] = {
    "Gather": _gathered,
    "Slice": _sliced,
    "Split": _split,
}


def _axis(before: ir.Shape, after: ir.Shape, label: int) -> _PartsAxis | None:
    """Return which axis of `before` begins with axis `label` of `after`, of the same numbers."""
    at = 0
    lead = _wide(after[:label])
    while at < len(before) and (len(_wide(before[:at])) < len(lead) or before[at] == 1):
        at += 1
    count, whole = after[label], before[at] if at < len(before) else 1
    if (
        not isinstance(count, int)
        or not isinstance(whole, int)
        or not _same(before[:at], after[:label])
    ):
        return None
    tail, rest = _wide(before[at + 1 :]), _wide(after[label + 1 :])
    inner = rest[: len(rest) - len(tail)]
    width = tuple(size for size in inner if isinstance(size, int))
    if len(width) < len(inner) or not width or count * prod(width) != whole:
        return None
    return _PartsAxis(at, count, width) if _same(tail, rest[len(inner) :]) else None


def _parts(editor: Editor, x: ir.Value, axis: _PartsAxis) -> tuple[ir.Value, ...]:
    sizes = [prod(axis.width)] * axis.count
    if editor.opset < _SIZES_ARE_INPUTS:
        return editor.ops("Split", x, outputs=axis.count, axis=axis.at, split=sizes)
    return editor.ops("Split", x, np.array(sizes), outputs=axis.count, axis=axis.at)


def _wide(sizes: Sequence[Size]) -> list[Size]:
    """Return all sizes but 1."""
    return [size for size in sizes if size != 1]


def _same(one: Sequence[Size], other: Sequence[Size]) -> bool:
    """Tell whether two shapes are the same but for axes of size 1."""
    first, second = _wide(one), _wide(other)
    return len(first) == len(second) and all(map(same_size, first, second))


def _number(size: Size) -> int:
    return size if isinstance(size, int) else -1


def _open(sizes: Sequence[Size]) -> int:
    return sum(not isinstance(size, int) for size in sizes)


@dataclass(frozen=True)
class SplitParts(RulePass):
    """Tell parts apart before they are moved."""

    name: ClassVar[str] = "split_parts"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Reshape": (split,)}
