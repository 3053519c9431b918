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

from sambac.graph.builder import Builder, rank_of, shape_of

HALF = (ir.DataType.FLOAT16, ir.DataType.BFLOAT16)
"""Types without arithmetic of their own in onnxruntime's CPU build."""
_SHORT = 1 << 16
"""Elements whose float32 squares a running sum adds up without visible loss; more go by rows."""
_ROW = 1024


class Algebra:
    """Makes terms over one model, and remembers the scalars it has made."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self._made: dict[tuple[object, ...], ir.Value] = {}

    def term(self, value: ir.Value) -> Term:
        """Return `value` as a term, in float32 if its type has no arithmetic of its own."""
        if value.dtype in HALF:
            value = self.builder.op("Cast", value, to=int(ir.DataType.FLOAT))
        return Term(self, value)

    def once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        """Return what `make` made when it was first called for `key`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]

    def apply(self, op_type: str, *operands: Term | float) -> Term:
        """Return the result of an elementwise operator; scalars take the type of tensors."""
        terms = [item for item in operands if isinstance(item, Term)]
        narrow = [item.dtype for item in terms if item.dtype != ir.DataType.DOUBLE]
        inputs = [
            self.cast(item, narrow[0] if narrow else item.dtype).value
            if isinstance(item, Term)
            else item
            for item in operands
        ]
        make = partial(self.builder.op, op_type, *inputs)
        if not all(item.is_scalar for item in terms):
            return Term(self, make())
        key = (op_type, *(i.name if isinstance(i, ir.Value) else i for i in inputs))
        return Term(self, self.once(key, make))

    def cast(self, term: Term, dtype: ir.DataType) -> Term:
        """Return `term` as `dtype`."""
        if term.dtype == dtype:
            return term
        make = partial(self.builder.op, "Cast", term.value, to=int(dtype))
        return Term(self, self.once(("Cast", term.value.name, dtype), make))


@dataclass(frozen=True, eq=False)
class Term:
    """A value that can be calculated with: a tensor, or a float64 scalar."""

    algebra: Algebra
    value: ir.Value

    @property
    def dtype(self) -> ir.DataType:
        """Its element type."""
        assert self.value.dtype is not None
        return self.value.dtype

    @property
    def is_scalar(self) -> bool:
        """Whether it has rank 0."""
        return rank_of(self.value) == 0

    def __add__(self, other: Term | float) -> Term:
        return self.algebra.apply("Add", self, other)

    def __radd__(self, other: float) -> Term:
        return self.algebra.apply("Add", other, self)

    def __sub__(self, other: Term | float) -> Term:
        return self.algebra.apply("Sub", self, other)

    def __rsub__(self, other: float) -> Term:
        return self.algebra.apply("Sub", other, self)

    def __mul__(self, other: Term | float) -> Term:
        return self.algebra.apply("Mul", self, other)

    def __rmul__(self, other: float) -> Term:
        return self.algebra.apply("Mul", other, self)

    def __truediv__(self, other: Term | float) -> Term:
        return self.algebra.apply("Div", self, other)

    def __rtruediv__(self, other: float) -> Term:
        return self.algebra.apply("Div", other, self)

    def __pow__(self, other: Term | float) -> Term:
        return self.algebra.apply("Pow", self, other)

    def __neg__(self) -> Term:
        return self.algebra.apply("Neg", self)

    def sqrt(self) -> Term:
        """Return the square root."""
        return self.algebra.apply("Sqrt", self)

    def maximum(self, other: Term | float) -> Term:
        """Return the larger of the two, element by element."""
        return self.algebra.apply("Max", self, other)

    def minimum(self, other: Term | float) -> Term:
        """Return the smaller of the two, element by element."""
        return self.algebra.apply("Min", self, other)

    def plus(self, other: Term, times: Term) -> Term:
        """Return self + other * times, `times` a scalar: one kernel for float32 vectors.

        The kernel takes no empty ones.
        """
        fits = self.dtype == ir.DataType.FLOAT and rank_of(self.value) == 1
        if not fits or shape_of(self.value) == (0,):
            return self + other * times
        builder = self.algebra.builder
        scalar = self.algebra.cast(times, ir.DataType.FLOAT).value
        make = partial(builder.op, "Reshape", scalar, [1])
        gate = self.algebra.once(("gate", scalar.name), make)
        fused = builder.op("GatedAdd", self.value, other.value, gate, domain="com.microsoft")
        return Term(self.algebra, fused)

    def is_zero(self) -> Term:
        """Return whether a float64 scalar is 0, as a truth value."""
        make = partial(self.algebra.builder.op, "Equal", self.value, 0.0)
        return Term(self.algebra, self.algebra.once(("zero", self.value.name), make))

    def where(self, condition: Term, otherwise: Term) -> Term:
        """Return self where `condition` holds, else `otherwise`, of the same type and shape."""
        builder = self.algebra.builder
        chosen = builder.op("Where", condition.value, self.value, otherwise.value)
        return Term(self.algebra, chosen)

    def is_positive(self) -> Term:
        """Return 1 where a float64 scalar is above 0, else 0."""
        builder = self.algebra.builder
        above = builder.op("Greater", self.value, 0.0)
        return Term(self.algebra, builder.op("Cast", above, to=int(ir.DataType.DOUBLE)))

    def squared_norm(self) -> Term:
        """Return the sum of the squares of all elements, a float64 scalar."""
        builder = self.algebra.builder
        size = prod(shape_of(self.value))
        if self.dtype == ir.DataType.DOUBLE or size <= _SHORT:
            total = builder.op("ReduceSumSquare", self.value, keepdims=0)
        else:
            total = self._squares_by_rows(size)
        return self.algebra.cast(Term(self.algebra, total), ir.DataType.DOUBLE)

    def _squares_by_rows(self, size: int) -> ir.Value:
        """Return the sum of squares as a sum over sums of rows, which loses no small ones."""
        builder = self.algebra.builder
        width = next((width for width in range(_ROW, 63, -1) if size % width == 0), 0)
        if not width:
            flat = builder.op("Reshape", self.value, [size])
            rest = size % _ROW
            head, tail = builder.ops("Split", flat, [size - rest, rest], outputs=2)
            rows = Term(self.algebra, head)._squares_by_rows(size - rest)
            return builder.op("Add", rows, builder.op("ReduceSumSquare", tail, keepdims=0))
        rows = builder.op("Reshape", self.value, [size // width, width])
        sums = builder.op("ReduceSum", builder.op("Mul", rows, rows), [1], keepdims=0)
        return builder.op("ReduceSum", sums, keepdims=0)
