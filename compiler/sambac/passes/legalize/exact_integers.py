"""Operators on whole numbers that onnxruntime's kernels get wrong, by others that they get right.

On processors with AVX2 alone, int64 numbers whose upper 32 bits are the same are in the order of
their lower halves as numbers with a sign: 3e9 is below 0. Comparisons and `Where` are right:

    Max(x, y)        ->  Where(x < y, y, x)       also Min, and of more than two
    Clip(x, a, b)    ->  Min(Max(x, a), b), likewise
    Sign(x)          ->  (x > 0) - (x < 0)
    ReduceMax(x)     ->  ReduceMax(high) 2^32 + ReduceMax(low of those with that high) + 2^31

also ReduceMin, where x = high 2^32 + low + 2^31. Sums and products go by float64, which has 53 bits
and does not go around. They are made of parts that are small enough, and of products:

    ReduceSum(x)     ->  ReduceSum(x mod 2^32) + 2^32 ReduceSum(x div 2^32)
    ReduceL1, ReduceSumSquare  ->  ReduceSum(|x|), ReduceSum(x x)
    ReduceProd(x)    ->  Mul of halves, of theirs, ...
    Mod(x, y) of C   ->  that of Python, less y where its sign is not that of x
    Pow(x, y)        ->  Mul of x, x^2, x^4, ..., those that y has a bit for

What is known to be small enough stays: counts of truth values, sizes, and places.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import attributes_of, input_at, int_attribute, static_shape
from sambac.passes.rewriting import Rule, RulePass, constant, integers, present

from .integer_bounds import bounds, largest

_HALF = 2**31
_EXACT = 2**53
"""What float64 has all digits of, up to this."""

_MANY = 2**37
"""How many elements sums of open sizes have at most."""

_OPSET = 10
"""From which on there are all operators that are needed; older ones stay as they are."""

_WHOLE = frozenset({ir.DataType.INT32, ir.DataType.INT64})
_INT64 = ir.DataType.INT64


def _is_misordered(editor: Editor, *values: ir.Value) -> bool:
    """Tell whether int64 numbers may be such that their order is wrong."""
    if editor.opset < _OPSET or any(value.dtype != _INT64 for value in values):
        return False
    ends = [bounds(value) for value in values]
    return min(low for low, _ in ends) < -_HALF or max(high for _, high in ends) >= _HALF


_ORDERED = "they are in order"


def _extreme(editor: Editor, node: ir.Node) -> str | None:
    """Max(x, y, ...) -> Where(x < y, y, x), ..., and Min."""
    values = present(node.inputs)
    if len(values) < 2 or not _is_misordered(editor, *values):
        return _ORDERED
    *before, last = values
    found = before[0]
    for value in before[1:]:
        found = editor.op("Where", _beats(editor, node.op_type, value, found), value, found)
    beats = _beats(editor, node.op_type, last, found)
    editor.replace(node, "Where", beats, last, found)
    return None


def _beats(editor: Editor, op_type: str, one: ir.Value, other: ir.Value) -> ir.Value:
    return editor.op("Greater" if op_type == "Max" else "Less", one, other)


def _clip(editor: Editor, node: ir.Node) -> str | None:
    """Clip(x, a, b) -> Where(y > b, b, y) of y = Where(x < a, a, x)."""
    x, limits = input_at(node, 0), (input_at(node, 1), input_at(node, 2))
    if x is None or not _is_misordered(editor, x, *present(limits)):
        return _ORDERED
    for op_type, limit in zip(("Max", "Min"), limits, strict=True):
        if limit is not None:
            limit = editor.op("Reshape", limit, np.zeros(0, np.int64))
            beyond = _beats(editor, op_type, limit, x)
            x = editor.op("Where", beyond, limit, x, like=node.outputs[0])
    editor.replace(node, "Identity", x)
    return None


def _sign(editor: Editor, node: ir.Node) -> str | None:
    """Sign(x) -> (x > 0) - (x < 0)."""
    x = node.inputs[0]
    if x is None or not _is_misordered(editor, x):
        return _ORDERED
    zero = np.asarray(0, np.int64)
    above, below = (
        editor.op("Cast", editor.op(way, x, zero), to=int(_INT64)) for way in ("Greater", "Less")
    )
    editor.replace(node, "Sub", above, below)
    return None


def _reduced_extreme(editor: Editor, node: ir.Node) -> str | None:
    """ReduceMax of the upper halves, and of the lower ones of those that are as large."""
    x = node.inputs[0]
    if x is None or not _is_misordered(editor, x) or 0 in (static_shape(x) or ()):
        return _ORDERED
    worst = -_HALF if node.op_type == "ReduceMax" else _HALF - 1
    low, high = _parts(editor, x, 2 * _HALF)
    best = _again(editor, node, high, keepdims=1)
    from_middle = editor.op("Sub", low, np.asarray(_HALF, np.int64), like=x)
    are_best = editor.op("Equal", high, best)
    left = editor.op("Where", are_best, from_middle, np.asarray(worst, np.int64), like=x)
    upper = editor.op("Mul", _again(editor, node, high), np.asarray(2 * _HALF, np.int64))
    lower = editor.op("Add", _again(editor, node, left), np.asarray(_HALF, np.int64))
    editor.replace(node, "Add", upper, lower)
    return None


def _parts(editor: Editor, x: ir.Value, base: int) -> tuple[ir.Value, ir.Value]:
    """Return `x` modulo `base`, and how often `base` goes into the rest."""
    divisor = np.asarray(base, np.int64)
    low = editor.op("Mod", x, divisor, like=x)
    return low, editor.op("Div", editor.op("Sub", x, low, like=x), divisor, like=x)


def _again(editor: Editor, node: ir.Node, x: ir.Value, **others: int) -> ir.Value:
    """Return what `node` makes of `x` instead of its first operand."""
    attributes = {**attributes_of(node), **others}
    if node.op_type in _EXTREMA:
        return editor.op(node.op_type, x, *node.inputs[1:], **attributes)
    axes = attributes.pop("axes", None) if editor.opset >= _AXES_ARE_OPERANDS else None
    operands = node.inputs[1:] if axes is None else [axes]
    return editor.op("ReduceSum", x, *operands, **attributes)


_EXTREMA = ("ReduceMax", "ReduceMin")


def _sum(editor: Editor, node: ir.Node) -> str | None:
    """ReduceSum(x) -> ReduceSum(x mod 2^32) + 2^32 ReduceSum(x div 2^32); sums of |x|, x x too."""
    x = node.inputs[0]
    if editor.opset < _OPSET or x is None or x.dtype not in _WHOLE:
        return "there are no whole numbers"
    count, most = _count(node), largest(x)
    many = _MANY if count is None else count
    most = most * most if node.op_type == "ReduceSumSquare" else most
    if many * most <= (_EXACT if x.dtype == _INT64 else _HALF - 1):
        return "sums are exact"
    summed = _summed(editor, node, _terms(editor, node, x), many)
    if x.dtype == _INT64:
        editor.replace(node, "Identity", summed)
    else:
        editor.replace(node, "Cast", summed, to=int(x.dtype))
    return None


def _terms(editor: Editor, node: ir.Node, x: ir.Value) -> ir.Value:
    """Return what `node` sums up of `x`, as int64."""
    wide = x if x.dtype == _INT64 else editor.op("Cast", x, to=int(_INT64))
    if node.op_type == "ReduceL1":
        return editor.op("Abs", wide)
    return editor.op("Mul", wide, wide) if node.op_type == "ReduceSumSquare" else wide


def _summed(editor: Editor, node: ir.Node, terms: ir.Value, count: int) -> ir.Value:
    """Return the sums of `count` int64 `terms` over the axes of `node`, which go around."""
    base = 2**32 if count * 2**32 <= _EXACT else 2**16
    most, weight, total = largest(terms), 1, None
    while True:
        rest = None
        if count * most > _EXACT:
            terms, rest = _parts(editor, terms, base)
        part = _again(editor, node, terms)
        if total is not None:
            part = editor.op("Add", total, editor.op("Mul", part, np.asarray(weight, np.int64)))
        if rest is None:
            return part
        total, terms = part, rest
        most, weight = most // base + 1, weight * base


def _axes(node: ir.Node) -> Sequence[int] | None:
    """Return the axes that `node` reduces, from the start; None if they are not known."""
    x = node.inputs[0]
    if x is None or x.shape is None:
        return None
    listed, operand = node.attributes.get("axes"), input_at(node, 1)
    given = listed.as_ints() if listed is not None else ()
    if operand is not None:
        known = integers(operand)
        if known is None:
            return None
        given = known
    rank = len(x.shape)
    if not given:
        return () if int_attribute(node, "noop_with_empty_axes") else range(rank)
    return sorted(axis % rank for axis in given)


def _count(node: ir.Node) -> int | None:
    """Return how many elements `node` makes one of; None if that is open."""
    x, axes = node.inputs[0], _axes(node)
    if axes is None or x is None or x.shape is None:
        return None
    sizes = [x.shape[axis] for axis in axes]
    known = [size for size in sizes if isinstance(size, int)]
    return math.prod(known) if len(known) == len(sizes) else None


def _product(editor: Editor, node: ir.Node) -> str | None:
    """ReduceProd(x) -> products of halves along each axis."""
    x, axes, count = node.inputs[0], _axes(node), _count(node)
    if editor.opset < _OPSET or x is None or x.dtype not in _WHOLE or axes is None:
        return "there are no whole numbers, or the axes are not known"
    if not count:
        return "the sizes are open, or there are no elements"
    most, limit = largest(x), _EXACT if x.dtype == _INT64 else _HALF - 1
    if most < 2 or count * math.log2(most) < math.log2(limit):
        return "products are exact"
    for axis in axes:
        x = _multiplied(editor, x, axis)
    if int_attribute(node, "keepdims", 1) or not axes:
        editor.replace(node, "Identity", x)
    elif editor.opset < _AXES_ARE_OPERANDS:
        editor.replace(node, "Squeeze", x, axes=list(axes))
    else:
        editor.replace(node, "Squeeze", x, np.asarray(axes, np.int64))
    return None


_AXES_ARE_OPERANDS = 13
"""From which opset on those of Squeeze and ReduceSum are; of other reductions, later."""


def _multiplied(editor: Editor, x: ir.Value, axis: int) -> ir.Value:
    """Return the products of all elements of `x` along `axis`, whose size becomes 1."""
    assert x.shape is not None
    size = x.shape[axis]
    assert isinstance(size, int)
    while size > 1:
        half = size // 2
        ends = ((0, half), (half, 2 * half), (2 * half, size))
        first, second, rest = (
            editor.op("Slice", x, [begin], [end], [axis]) if begin < end else None
            for begin, end in ends
        )
        x = editor.op("Mul", first, second)
        if rest is not None:
            x = editor.op("Concat", x, rest, axis=axis)
        size = half + size % 2
    return x


def _remainder(editor: Editor, node: ir.Node) -> str | None:
    """Mod(x, y, fmod=1) -> Mod(x, y), less y where the signs of that and of x are not the same.

    A divisor of -1 becomes 1: both divide any number without a rest, and processors refuse the
    lowest one by -1.
    """
    x, y = present(node.inputs)
    if editor.opset < _OPSET or x.dtype not in (_INT64, ir.DataType.UINT64):
        return "they have fewer bits than float64"
    if not int_attribute(node, "fmod"):
        return "it goes by whole numbers"
    if x.dtype != _INT64:
        editor.replace(node, "Mod", x, y)
        return None
    zero, one = np.asarray(0, np.int64), np.asarray(1, np.int64)
    divisor = editor.op("Where", editor.op("Equal", y, np.asarray(-1, np.int64)), one, y)
    rest = editor.op("Mod", x, divisor)
    signs = editor.op("Xor", editor.op("Less", x, zero), editor.op("Less", rest, zero))
    other = editor.op("And", signs, editor.op("Not", editor.op("Equal", rest, zero)))
    editor.replace(node, "Where", other, editor.op("Sub", rest, divisor), rest)
    return None


_MOST_POWER = 2**16 - 1
"""Up to which exponents powers are made of products, of 16 squares at most."""


def _power(editor: Editor, node: ir.Node) -> str | None:
    """Pow(x, y) -> Mul of the squares of squares of x that y has a bit for."""
    x, y = present(node.inputs)
    if editor.opset < _OPSET or x.dtype not in _WHOLE or y.dtype is None or y.dtype not in _WHOLE:
        return "there are no whole numbers"
    low, high = bounds(y)
    limit = _EXACT if x.dtype == _INT64 else _HALF - 1
    if high * math.log2(max(largest(x), 2)) < math.log2(limit):
        return "powers are exact"
    content = constant(y)
    known = content is not None and content.ndim == 0 and 0 < high <= _MOST_POWER
    bits = min(high, _MOST_POWER).bit_length()
    exact = _squares(editor, x, y, bits, high if known else None)
    if low < 0 or high > _MOST_POWER:
        most = np.asarray(_MOST_POWER, y.dtype.numpy())
        beyond = editor.op(
            "Or", editor.op("Less", y, np.zeros_like(most)), editor.op("Greater", y, most)
        )
        exact = editor.op("Where", beyond, editor.op("Pow", x, y), exact)
    editor.replace(node, "Identity", exact)
    return None


def _squares(editor: Editor, x: ir.Value, y: ir.Value, bits: int, power: int | None) -> ir.Value:
    """Return x^y for `y` of so many `bits`, which is `power` for all elements if that is known."""
    assert x.dtype is not None
    one, two = np.asarray(1, x.dtype.numpy()), np.asarray(2, np.int64)
    wide = editor.op("Cast", y, to=int(_INT64)) if power is None else None
    square, found = x, None
    for place in range(bits):
        square = editor.op("Mul", square, square) if place else x
        factor: ir.Value | None = square
        if wide is not None:
            half = editor.op("Div", wide, np.asarray(1 << place, np.int64))
            bit = editor.op("Cast", editor.op("Mod", half, two), to=int(ir.DataType.BOOL))
            factor = editor.op("Where", bit, square, one)
        elif power is not None and not power >> place & 1:
            continue
        found = factor if found is None else editor.op("Mul", found, factor)
    assert found is not None
    return found


@dataclass(frozen=True)
class ExactIntegers(RulePass):
    """Write operators on whole numbers in those that onnxruntime computes exactly."""

    name: ClassVar[str] = "exact_integers"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        **dict.fromkeys(("Max", "Min"), (_extreme,)),
        "Clip": (_clip,),
        "Sign": (_sign,),
        **dict.fromkeys(_EXTREMA, (_reduced_extreme,)),
        **dict.fromkeys(("ReduceSum", "ReduceL1", "ReduceSumSquare"), (_sum,)),
        "ReduceProd": (_product,),
        "Mod": (_remainder,),
        "Pow": (_power,),
    }
