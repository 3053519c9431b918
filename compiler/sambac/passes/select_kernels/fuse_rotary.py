"""Rotary embeddings, spelled out, as the one operator that they are.

    x * c + Concat(Neg(x2), x1) * s              ->  RotaryEmbedding(x, [0], c', s')

where x1, x2 are the halves of the last axis of x [batch, heads, places, 2 n], and c, s
[places, 2 n] have two equal halves c', s' [places, n]: constants, or elementwise results of a
Concat(t, t). So Llama and its like have it. GPT-J and others turn neighbours instead of halves:

    x * c + Reshape(Concat(Neg(x2), x1)) * s     ->  the same with interleaved = 1

where x1, x2 are every other number, each with a last axis of 1, and c, s have each number twice.

ONNX's own operator wants a row of angles for each place of each example. Where there is one for all
examples, as PyTorch exports them, it becomes that operator, too:

    RotaryEmbedding(x, c' [1, places, n], s')    ->  RotaryEmbedding(x, [0], c', s')

For float32, where nothing else reads the parts. One thread takes a third of the time for halves, a
seventh for neighbours, and keeps nothing for the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, same_shape, same_size
from sambac.passes.rewriting import (
    Rule,
    RulePass,
    constant,
    derived_name,
    has_one_reader,
    integers,
    made_by,
    scalar,
)

DOMAIN = "com.microsoft"
_RANK = 4
_PAIR = 2


@dataclass(frozen=True)
class _Turn:
    """`x`, which is turned by a right angle, in pairs of neighbours or of its halves."""

    x: ir.Value
    neighbours: bool

    @property
    def size(self) -> int:
        """The size of the last axis, which has pairs."""
        assert self.x.shape is not None
        return int(self.x.shape[-1])  # type: ignore[arg-type]  # a Turn has a known last size


def fuse(editor: Editor, node: ir.Node) -> str | None:
    """Make x * c + (x turned) * s a RotaryEmbedding."""
    for plain, across in (node.inputs, reversed(node.inputs)):
        for turn, sines in _turned(across):
            cosines = _factor_of(plain, turn.x)
            if cosines is None:
                continue
            if not same_shape(turn.x, node.outputs[0]):
                return "angles give the result axes or sizes of their own"
            return _put(editor, node, turn, (cosines, sines))
    return "no sum of a value and the value turned, each times angles, which nothing else reads"


def share_angles(editor: Editor, node: ir.Node) -> str | None:
    """Let all examples of a RotaryEmbedding of ONNX have the angles of the only one."""
    x, *angles = node.inputs[:3]
    if input_at(node, 3) is not None or int_attribute(node, "rotary_embedding_dim"):
        return "it has positions, or turns a part"
    if x is None or x.dtype != ir.DataType.FLOAT or x.shape is None or len(x.shape) != _RANK:
        return "it is not of float32, or its heads are no axis"
    rows = []
    for each in angles:
        shape = None if each is None else each.shape
        if shape is None or len(shape) != _RANK - 1 or shape[0] != 1:
            return "examples have angles of their own"
        if not same_size(shape[1], x.shape[2]):
            return "the angles are not one row for each place"
        if not isinstance(shape[2], int) or not shape[2] or _PAIR * shape[2] != x.shape[3]:
            return "not all pairs have an angle"
        rows.append(editor.op("Reshape", each, [-1, shape[2]]))
    first, pairs = np.zeros(1, np.int64), int_attribute(node, "interleaved")
    editor.replace(node, "RotaryEmbedding", x, first, *rows, domain=DOMAIN, interleaved=pairs)
    return None


def _put(
    editor: Editor, node: ir.Node, turn: _Turn, angles: tuple[ir.Value, ir.Value]
) -> str | None:
    if not all(_per_place(each, turn) for each in angles):
        return "the angles are not one row for each place"
    if not all(_is_paired(each, turn) for each in angles):
        return "the numbers of a pair may be turned by two angles"
    cosines, sines = (_cache(editor, each, turn) for each in angles)
    operands = turn.x, np.zeros(1, np.int64), cosines, sines
    neighbours = int(turn.neighbours)
    editor.replace(node, "RotaryEmbedding", *operands, domain=DOMAIN, interleaved=neighbours)
    return None


def _turned(product: ir.Value | None) -> Iterator[tuple[_Turn, ir.Value]]:
    """Yield what is turned, and what it is multiplied with, if `product` is such a product."""
    node = made_by(product, "Mul")
    if product is None or node is None or not has_one_reader(product):
        return
    for value, factor in (node.inputs, reversed(node.inputs)):
        turn = _turn(value)
        if turn is not None and factor is not None:
            yield turn, factor


def _factor_of(product: ir.Value | None, x: ir.Value) -> ir.Value | None:
    """Return y, if `product` is x * y."""
    node = made_by(product, "Mul")
    if product is None or node is None or not has_one_reader(product):
        return None
    first, second = node.inputs
    return second if first is x else first if second is x else None


def _turn(value: ir.Value | None) -> _Turn | None:
    """Return what is turned by a right angle to `value`."""
    if value is None or not has_one_reader(value):
        return None
    reshape = made_by(value, "Reshape")
    joined = made_by(value if reshape is None else reshape.inputs[0], "Concat")
    if joined is None or len(joined.inputs) != _PAIR or not has_one_reader(joined.outputs[0]):
        return None
    rank = len(joined.outputs[0].shape or ())
    if int_attribute(joined, "axis") not in (-1, rank - 1):
        return None
    first, second = joined.inputs
    if reshape is not None:
        first, second = _unsqueezed(first), _unsqueezed(second)
    negative = made_by(first, "Neg")
    if negative is None or second is None or not has_one_reader(negative.outputs[0]):
        return None
    x = _pair(second, negative.inputs[0], 1 if reshape is None else _PAIR)
    if x is None or (reshape is not None and not same_shape(x, value)):
        return None
    return _Turn(x, neighbours=reshape is not None)


def _unsqueezed(value: ir.Value | None) -> ir.Value | None:
    """Return what `value` is with a last axis of 1."""
    node = made_by(value, "Unsqueeze")
    if value is None or node is None or not has_one_reader(value):
        return None
    axes = integers(input_at(node, 1))
    return node.inputs[0] if axes in ((-1,), (len(value.shape or ()) - 1,)) else None


@dataclass(frozen=True)
class _Members:
    """Numbers of the last axis of `source`: from `begin` to before `end`, by steps."""

    source: ir.Value
    begin: int
    end: int
    step: int


def _pair(first: ir.Value | None, second: ir.Value | None, step: int) -> ir.Value | None:
    """Return the value of float32 whose halves, or every other numbers, the two are."""
    one, two = _members_of(first), _members_of(second)
    if one is None or two is None or one.source is not two.source:
        return None
    x = one.source
    if x.dtype != ir.DataType.FLOAT or x.shape is None or len(x.shape) != _RANK:
        return None
    size = x.shape[-1]
    if not isinstance(size, int) or size % _PAIR or not size:
        return None
    half = size // _PAIR
    wanted = (
        (_Members(x, 0, half, step), _Members(x, half, size, step))
        if step == 1
        else (_Members(x, 0, size, step), _Members(x, 1, size, step))
    )
    return x if (one, two) == wanted else None


def _members_of(value: ir.Value | None) -> _Members | None:
    """Return of which last axis `value` is which piece."""
    node = made_by(value, "Slice", "Split")
    source = None if node is None else node.inputs[0]
    if value is None or node is None or source is None or source.shape is None:
        return None
    last, size = len(source.shape) - 1, source.shape[-1]
    if not isinstance(size, int):
        return None
    if node.op_type == "Split":
        sizes = [_last_size(part) for part in node.outputs]
        at = value.index() or 0
        before = sum(sizes[:at])
        along = int_attribute(node, "axis") in (-1, last)
        whole = along and sum(sizes) == size
        return _Members(source, before, before + sizes[at], 1) if whole else None
    begin, end, axes = (integers(input_at(node, at)) for at in (1, 2, 3))
    steps = integers(input_at(node, 4)) if input_at(node, 4) is not None else (1,)
    if begin is None or end is None or axes not in ((-1,), (last,)) or steps is None:
        return None
    return _Members(source, *slice(begin[0], end[0], steps[0]).indices(size))


def _last_size(value: ir.Value) -> int:
    """Return the size of the last axis, 0 if it is not known."""
    last = value.shape[-1] if value.shape else None
    return last if isinstance(last, int) else 0


def _per_place(angles: ir.Value, turn: _Turn) -> bool:
    """Tell whether `angles` has a row for each place of the one next to last axis of x."""
    shape, x = angles.shape, turn.x.shape
    if shape is None or x is None or angles.dtype != ir.DataType.FLOAT or len(shape) < _PAIR:
        return False
    if any(size != 1 for size in shape[:-2]):
        return False
    return same_size(shape[-2], x[-2]) and shape[-1] == turn.size


def _is_paired(angles: ir.Value, turn: _Turn) -> bool:
    """Tell whether both numbers of each pair are known to have the same angle."""
    content = constant(angles)
    if content is not None:
        return np.array_equal(*_members(content, turn))
    return not turn.neighbours and _is_twice(angles)


def _cache(editor: Editor, angles: ir.Value, turn: _Turn) -> ir.Value:
    """Return one number for each pair: [places, n]."""
    content = constant(angles)
    if content is None:
        return _first_half(editor, angles, turn.size // _PAIR)
    first, _ = _members(content, turn)
    return editor.constant(np.ascontiguousarray(first), derived_name(angles, "half"))


def _members(content: Array, turn: _Turn) -> tuple[Array, Array]:
    """Return what the first and the second numbers of pairs are multiplied with, [places, n]."""
    rows = content.reshape(-1, turn.size)
    if turn.neighbours:
        return rows[:, ::2], rows[:, 1::2]
    half = turn.size // _PAIR
    return rows[:, :half], rows[:, half:]


def _first_half(editor: Editor, angles: ir.Value, half: int) -> ir.Value:
    """Return [places, half], made once behind what makes `angles`, for all layers."""
    part = [editor.constant(np.asarray([number])) for number in (0, half, -1)]
    for reader in angles.consumers():
        if reader.op_type == "Slice" and [*reader.inputs[1:]] == part:
            return reader.outputs[0].consumers()[0].outputs[0]
    maker = angles.producer()
    assert maker is not None
    editor.go_behind(maker)
    return editor.op("Reshape", editor.op("Slice", angles, *part), [-1, half])


_ALIKE = ("Cast", "Cos", "Identity", "Sin", "Unsqueeze")
_BESIDE_NUMBERS = ("Add", "Div", "Mul", "Sub")


def _is_twice(value: ir.Value | None) -> bool:
    """Tell whether the last axis of `value` is known to have two equal halves.

    It is where it is elementwise of a Concat(t, t), with the same number for all: axes that come
    before the last leave it, and one behind it has a single element.
    """
    while (node := made_by(value, *_ALIKE, *_BESIDE_NUMBERS)) is not None:
        value = _beside_number(node) if node.op_type in _BESIDE_NUMBERS else node.inputs[0]
    joined = made_by(value, "Concat")
    if joined is None or len(joined.inputs) != _PAIR or joined.inputs[0] is not joined.inputs[1]:
        return False
    rank = len(joined.outputs[0].shape or ())
    return rank > 0 and int_attribute(joined, "axis") in (-1, rank - 1)


def _beside_number(node: ir.Node) -> ir.Value | None:
    """Return what `node` computes with a number, if the other operand is one."""
    first, second = node.inputs
    return first if scalar(second) is not None else second if scalar(first) is not None else None


@dataclass(frozen=True)
class FuseRotary(RulePass):
    """Make one operator of a rotary embedding."""

    name: ClassVar[str] = "fuse_rotary"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Concat", "RotaryEmbedding"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "Add": (fuse,),
        "RotaryEmbedding": (share_angles,),
    }
