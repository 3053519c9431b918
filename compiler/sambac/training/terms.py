"""Arithmetic on values of a graph, written as arithmetic: what optimizer formulas are made of.

    step = m / (v.sqrt() + eps * correction)        # tensors of one shape, scalars in float64
    new = w.plus(step, -lr * correction)            # w + step * (-lr * correction), one kernel

Scalars are float64 until they meet a tensor of another type, to which they are cast, once. Equal
operations on scalars are made once, so formulas may be written out for every parameter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

import onnx_ir as ir

from sambac.graph.editor import Editor, rank_of, shape_of
from sambac.graph.lanes import SHORTEST_LANE
from sambac.graph.origins import note_host_cast

HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Types without arithmetic of their own in onnxruntime's CPU build."""
_SHORT = 1 << 16
"""Elements whose float32 squares a running sum adds up without visible loss; more go by rows."""
_ROW = 1024


@dataclass(frozen=True, eq=False)
class Term:
    """A value that can be calculated with, by operators of `editor`: a tensor, or a float64 scalar.

    The editor's point remembers the scalars that were made there.
    """

    editor: Editor
    value: ir.Value

    @classmethod
    def of(cls, editor: Editor, value: ir.Value) -> Term:
        """Return `value` as a term, in float32 if its type has no arithmetic of its own."""
        if value.dtype in HALF:
            value = editor.op("Cast", value, to=int(ir.DataType.FLOAT))
            note_host_cast(value)
        return cls(editor, value)

    @property
    def dtype(self) -> ir.DataType:
        """Its element type."""
        assert self.value.dtype is not None
        return self.value.dtype

    @property
    def is_scalar(self) -> bool:
        """Whether it has rank 0."""
        return rank_of(self.value) == 0

    def cast(self, dtype: ir.DataType) -> Term:
        """Return the same numbers as `dtype`."""
        if self.dtype == dtype:
            return self
        make = partial(self.editor.op, "Cast", self.value, to=int(dtype))
        return self._once(("Cast", self.value.name, dtype), make)

    def _once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> Term:
        return Term(self.editor, self.editor.point.once(key, make))

    def __add__(self, other: Term | float) -> Term:
        return _apply(self.editor, "Add", self, other)

    def __radd__(self, other: float) -> Term:
        return _apply(self.editor, "Add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return _apply(self.editor, "Sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return _apply(self.editor, "Sub", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return _apply(self.editor, "Mul", self, other)

    def __rmul__(self, other: float) -> Term:
        return _apply(self.editor, "Mul", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return _apply(self.editor, "Div", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return _apply(self.editor, "Div", other, self)

    def __pow__(self, other: Term | float) -> Term:
        return _apply(self.editor, "Pow", self, other)

    def __neg__(self) -> Term:
        return _apply(self.editor, "Neg", self)

    def sqrt(self) -> Term:
        """Return the square root."""
        return _apply(self.editor, "Sqrt", self)

    def maximum(self, other: Term | float) -> Term:
        """Return the larger of the two, element by element."""
        return _apply(self.editor, "Max", self, other)

    def minimum(self, other: Term | float) -> Term:
        """Return the smaller of the two, element by element."""
        return _apply(self.editor, "Min", self, other)

    def plus(self, other: Term, times: Term) -> Term:
        """Return self + other * times, `times` a scalar: one kernel for float32 in long rows.

        The kernel takes no empty ones.
        """
        shape = shape_of(self.value)
        fits = len(shape) == 1 or (len(shape) > 1 and shape[-1] >= SHORTEST_LANE)
        if not fits or 0 in shape or self.dtype != ir.DataType.FLOAT:
            return self + other * times
        scalar = times.cast(ir.DataType.FLOAT).value
        rows = [*shape[:-1], 1]
        make = partial(self.editor.op, "Expand", scalar, rows)
        if rows == [1]:
            make = partial(self.editor.op, "Reshape", scalar, rows)
        gate = self._once(("gate", scalar.name, *rows), make).value
        return Term(
            self.editor,
            self.editor.op("GatedAdd", self.value, other.value, gate, domain="com.microsoft"),
        )

    def is_zero(self) -> Term:
        """Return whether a float64 scalar is 0, as a truth value."""
        make = partial(self.editor.op, "Equal", self.value, 0.0)
        return self._once(("zero", self.value.name), make)

    def where(self, condition: Term, otherwise: Term) -> Term:
        """Return self where `condition` holds, else `otherwise`, of the same type and shape."""
        chosen = self.editor.op("Where", condition.value, self.value, otherwise.value)
        return Term(self.editor, chosen)

    def is_positive(self) -> Term:
        """Return 1 where a float64 scalar is above 0, else 0."""
        above = self.editor.op("Greater", self.value, 0.0)
        return Term(self.editor, self.editor.op("Cast", above, to=int(ir.DataType.DOUBLE)))

    def squared_norm(self) -> Term:
        """Return the sum of the squares of all elements, a float64 scalar."""
        size = prod(shape_of(self.value))
        if self.dtype == ir.DataType.DOUBLE or size <= _SHORT:
            total = self.editor.op("ReduceSumSquare", self.value, keepdims=0)
        else:
            total = self._squares_by_rows(size)
        return Term(self.editor, total).cast(ir.DataType.DOUBLE)

    def _squares_by_rows(self, size: int) -> ir.Value:
        """Return the sum of squares as a sum over sums of rows, which loses no small ones."""
        editor = self.editor
        width = next((width for width in range(_ROW, 63, -1) if size % width == 0), 0)
        if not width:
            flat = editor.op("Reshape", self.value, [size])
            rest = size % _ROW
            head, tail = editor.ops("Split", flat, [size - rest, rest], outputs=2)
            rows = Term(editor, head)._squares_by_rows(size - rest)
            return editor.op("Add", rows, editor.op("ReduceSumSquare", tail, keepdims=0))
        rows = editor.op("Reshape", self.value, [size // width, width])
        sums = editor.op("ReduceSum", editor.op("Mul", rows, rows), [1], keepdims=0)
        return editor.op("ReduceSum", sums, keepdims=0)


def _apply(editor: Editor, op_type: str, *operands: Term | float) -> Term:
    """Return the result of an elementwise operator; scalars take the type of tensors."""
    terms = [item for item in operands if isinstance(item, Term)]
    narrow = [item.dtype for item in terms if item.dtype != ir.DataType.DOUBLE]
    inputs = [
        item.cast(narrow[0] if narrow else item.dtype).value if isinstance(item, Term) else item
        for item in operands
    ]
    make = partial(editor.op, op_type, *inputs)
    if not all(item.is_scalar for item in terms):
        return Term(editor, make())
    key = (op_type, *(i.name if isinstance(i, ir.Value) else i for i in inputs))
    return Term(editor, editor.point.once(key, make))
