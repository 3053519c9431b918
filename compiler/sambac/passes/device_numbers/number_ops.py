"""What a device does to numbers, as operators of ONNX: the formulas of `sambac.numerics`.

With q = (2 ** 52 + 1) * x, in float64 and rounded as processors round,

    ufp(x)     =  q - (q - 2 ** -53 * q)         the power of two of the leading digit, signed
    cut(x, d)  =  ((x - u) + v) - v              d digits: u just under half of the last one that
                                                 stays, v so large that nothing smaller stays
    block(x)   =  the sign of x, times min(round(|x| / g), most) * g
                  g of the last digit, from ufp of the largest |x| of each block
    round(y)   =  floor(y), or floor((floor(2 * y) + 1) / 2), which is exact where y + 0.5 is not

Each is exact, so that no processor gives another number, and of operators that neither a pass nor
onnxruntime simplifies to others. (It takes a factor of 1 - 2 ** -53 for 1.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.numerics import (
    BLOCK,
    FLOAT32,
    FORMATS,
    LARGEST,
    NumberFormat,
    SourceRegister,
    rounded,
    truncated,
)

_SPLIT = 2.0**52 + 1
_TOP = float(LARGEST)
_LITTLE = 2.0**-53
_ZERO = np.zeros((), np.float32)
_SUFFIXES = {"Float16_b": "bfloat16", "Float16": "float16"}
_PACKED = FORMATS["Bfp8_b"].digits


@dataclass(frozen=True, slots=True)
class NumberSpec:
    """What a value is to become: rounded to a format, and then cut to some digits.

    Blocks go along `axis`, and `rule` is how they are rounded; both say nothing of other formats.
    """

    form: NumberFormat = FLOAT32
    rule: str = "host"
    axis: int = -1
    digits: int = FLOAT32.digits

    @property
    def suffix(self) -> str:
        """How values are called that are so."""
        name = "" if self.form is FLOAT32 else _SUFFIXES.get(self.form.name, self.form.name.lower())
        cut = f"{self.digits}_digits" if self.digits < FLOAT32.digits else ""
        return "_".join(filter(None, (name, cut)))

    def of(self, array: Array) -> Array:
        """Return what becomes of an array, of its type and shape."""
        held = rounded(array, self.form, self.rule, self.axis if array.ndim > 1 else -1)
        return truncated(held, self.digits) if self.digits < FLOAT32.digits else held


def put(editor: Editor, value: ir.Value, spec: NumberSpec) -> ir.Value:
    """Put the operators that make of a float32 value what `spec` says, and return their result.

    Raises `CompileError` for a value whose blocks cannot be known.
    """
    held = _held(editor, value, spec)
    return cut(editor, held, spec.digits) if spec.digits < FLOAT32.digits else held


def first_part(editor: Editor, value: ir.Value, source: SourceRegister) -> ir.Value:
    """Return the first part of an operand of the multiplier, finite for infinities.

    So a product with a second part that is 0 adds nothing, instead of NaN.
    """
    return cut(editor, _finite(editor, value), source.first)


def second_part(editor: Editor, value: ir.Value, source: SourceRegister) -> ir.Value:
    """Return the second part of an operand of the multiplier, as `sambac.numerics.parts` does."""
    finite = _finite(editor, value)
    both, first = (cut(editor, finite, digits) for digits in (source.both, source.first))
    return editor.op("Sub", both, first, like=value)


def _finite(editor: Editor, value: ir.Value) -> ir.Value:
    return editor.op("Clip", value, -_TOP, _TOP, like=value)


def cut(editor: Editor, value: ir.Value, digits: int) -> ir.Value:
    """Return `value` with magnitudes of so many digits, the others cut off."""
    b = editor
    near = b.op("Cast", _finite(b, value), to=_DOUBLE)
    wide = b.op("Cast", value, to=_DOUBLE)
    power = _leading(b, near)
    half = b.op("Mul", power, 2.0**-digits - 2.0**-25)
    large = b.op("Mul", power, 1.5 * 2.0 ** (53 - digits))
    moved = b.op("Add", b.op("Sub", wide, half), large)
    kept = b.op("Sub", moved, large)
    return b.op("Cast", kept, like=value, name=f"{value.name}_cut", to=int(ir.DataType.FLOAT))


_DOUBLE = int(ir.DataType.DOUBLE)


def _leading(b: Editor, x: ir.Value) -> ir.Value:
    """Return ufp(x) of float64 numbers that were float32."""
    spread = b.op("Mul", x, _SPLIT)
    return b.op("Sub", spread, b.op("Sub", spread, b.op("Mul", spread, _LITTLE)))


def _held(editor: Editor, value: ir.Value, spec: NumberSpec) -> ir.Value:
    form = spec.form
    if form is FLOAT32:
        return value
    if form.block:
        return _block(editor, value, spec)
    if form.name in _SUFFIXES:
        return _cast_twice(editor, value, ir.DataType[_SUFFIXES[form.name].upper()])
    if form.name == "Lf8":
        return _small(editor, value, form)
    return cut(editor, value, form.digits)


def _cast_twice(editor: Editor, value: ir.Value, short: ir.DataType) -> ir.Value:
    suffix = short.name.lower()
    for end, dtype in ((suffix, short), ("rounded", ir.DataType.FLOAT)):
        like = ir.Value(type=ir.TensorType(dtype), shape=value.shape)
        stem = f"{str(value.name).removesuffix(f'_{suffix}')}_{end}"
        value = editor.op("Cast", value, like=like, name=stem, to=int(dtype))
    return value


def _small(b: Editor, value: ir.Value, form: NumberFormat) -> ir.Value:
    top = float(np.ldexp(form.most, form.highest - form.digits + 1))
    inside = cut(b, b.op("Clip", value, -top, top, like=value), form.digits)
    little = b.op("Less", b.op("Abs", value), 2.0**form.lowest)
    return b.op("Where", little, b.constant(_ZERO), inside, like=value)


def _block(editor: Editor, value: ir.Value, spec: NumberSpec) -> ir.Value:
    b, form = editor, spec.form
    layout = _BlockLayout.of(value, spec.axis)
    x = layout.opened(b, value)
    sizes = _in_range(b, b.op("Abs", x), form)
    digit = _last_digit(b, _largest(b, sizes, layout.inner), form)
    units = _rounded_units(b, sizes, digit, spec)
    size = b.op("Mul", b.op("Min", units, float(form.most)), digit)
    signed = b.op("Where", b.op("Less", x, 0.0), b.op("Sub", b.constant(_ZERO), size), size)
    return layout.closed(b, signed, value, f"{value.name}_{spec.suffix}")


def _in_range(b: Editor, sizes: ir.Value, form: NumberFormat) -> ir.Value:
    if form.bias == FLOAT32.bias:
        return sizes
    top = float(np.ldexp(2 - 2.0**-23, form.highest))
    inside = b.op("Min", b.op("Max", sizes, 2.0**form.lowest), top)
    return b.op("Where", b.op("Greater", sizes, 0.0), inside, sizes)


def _largest(b: Editor, sizes: ir.Value, axis: int) -> ir.Value:
    """Return the largest of each block, an axis of one element in the place of `axis`."""
    if b.opset < 18:
        return b.op("ReduceMax", sizes, axes=[axis], keepdims=1)
    return b.op("ReduceMax", sizes, [axis], keepdims=1)


def _last_digit(b: Editor, largest: ir.Value, form: NumberFormat) -> ir.Value:
    """Return what the last digit of each block is worth, in float32."""
    wide = b.op("Cast", b.op("Min", largest, _TOP), to=_DOUBLE)
    power = b.op("Max", _leading(b, wide), 2.0**form.lowest)
    digit = b.op("Mul", power, 2.0 ** (1 - form.digits))
    return b.op("Cast", digit, to=int(ir.DataType.FLOAT))


def _rounded_units(b: Editor, sizes: ir.Value, digit: ir.Value, spec: NumberSpec) -> ir.Value:
    """Return magnitudes in units of the last digit, as the rule rounds them; some too large."""
    more = _PACKED - spec.form.digits
    if spec.rule == "truncate":
        return b.op("Floor", b.op("Div", sizes, digit))
    if spec.rule == "host" or not more:
        return _nearest(b, sizes, digit)
    packed = _nearest(b, sizes, b.op("Mul", digit, 2.0**-more))
    return b.op("Floor", b.op("Mul", packed, 2.0**-more))


def _nearest(b: Editor, sizes: ir.Value, digit: ir.Value) -> ir.Value:
    """Return round(sizes / digit)."""
    halves = b.op("Floor", b.op("Div", sizes, b.op("Mul", digit, 0.5)))
    return b.op("Floor", b.op("Mul", b.op("Add", halves, 1.0), 0.5))


@dataclass(frozen=True, slots=True)
class _BlockLayout:
    """Where the blocks of a value are: `axis` of `size`, which opens to blocks and `inner`.

    `dims` are the sizes of the value, at most one of them -1 for one that is open.
    """

    dims: tuple[int, ...]
    axis: int

    @classmethod
    def of(cls, value: ir.Value, axis: int) -> _BlockLayout:
        shape = value.shape
        if shape is None:
            raise CompileError(f"{_unknown(value)}.")
        dims = tuple(size if isinstance(size, int) else -1 for size in shape) or (1,)
        place = axis % len(dims)
        if dims[place] < 0 or dims.count(-1) > 1:
            raise CompileError(f"{_unknown(value)}, it is {shape}.")
        return cls(dims, place)

    @property
    def size(self) -> int:
        return self.dims[self.axis]

    @property
    def inner(self) -> int:
        """The axis of what is in a block."""
        return self.axis + (self.size > BLOCK)

    def opened(self, b: Editor, value: ir.Value) -> ir.Value:
        """Return `value` with an axis of blocks before that of what is in them."""
        if not self.dims or len(value.shape or ()) == 0:
            value = b.op("Reshape", value, [1])
        if self.size <= BLOCK:
            return value
        missing = -self.size % BLOCK
        if missing:
            ends = [0] * (2 * len(self.dims))
            ends[len(self.dims) + self.axis] = missing
            value = b.op("Pad", value, ends)
        blocks = ((self.size + missing) // BLOCK, BLOCK)
        return b.op("Reshape", value, self._with(blocks))

    def closed(self, b: Editor, found: ir.Value, like: ir.Value, name: str) -> ir.Value:
        """Return what `opened` gave in the shape of `like`."""
        if self.size <= BLOCK and len(like.shape or ()) > 0:
            return b.op("Identity", found, like=like, name=name)
        if self.size % BLOCK and self.size > BLOCK:
            found = b.op("Reshape", found, self._with((-(-self.size // BLOCK) * BLOCK,)))
            return b.op("Slice", found, [0], [self.size], [self.axis], like=like, name=name)
        shape = self.dims if len(like.shape or ()) > 0 else ()
        return b.op("Reshape", found, np.asarray(shape, np.int64), like=like, name=name)

    def _with(self, sizes: Sequence[int]) -> list[int]:
        return [*self.dims[: self.axis], *sizes, *self.dims[self.axis + 1 :]]


def _unknown(value: ir.Value) -> str:
    return (
        f"'{value.name}' is to be rounded to blocks of {BLOCK} numbers, for which its sizes have "
        "to be known; fix the shapes of inputs (--input NAME=1x64), or choose a format without "
        "blocks"
    )
