"""Gradients of operators that write at given indices.

x is the table, u the updates, y the result, dy its gradient; z[index] is what lies in z where the
updates go. ScatterND writes rows of a matrix whose first axis is all indexed axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute
from sambac.ops.family import GradientRule, InputGradient

from .gather import flat_places
from .rules import cast, incoming, number, operand, reshape, selected


@dataclass(frozen=True)
class _Scatter:
    """A scatter of `updates` into `table` at `index` along `axis`, and its result with gradient."""

    table: ir.Value
    index: ir.Value
    updates: ir.Value
    axis: int
    y: ir.Value
    dy: ir.Value

    def read(self, b: Editor, table: ir.Value) -> ir.Value:
        """Return what lies in `table` where the updates go."""
        return b.op("GatherElements", table, self.index, axis=self.axis)

    def write(
        self, b: Editor, table: ir.Value, updates: ir.Value, reduction: str = "none"
    ) -> ir.Value:
        """Return `table` with other updates written at the same places."""
        return b.op(
            "ScatterElements", table, self.index, updates, axis=self.axis, reduction=reduction
        )


class _RowScatter(_Scatter):
    """A scatter of rows: `table` is a matrix, `index` has shape [N], `axis` is 0."""

    def read(self, b: Editor, table: ir.Value) -> ir.Value:
        """Return the rows of `table` where the updates go."""
        return b.op("Gather", table, self.index, axis=0)

    def write(
        self, b: Editor, table: ir.Value, updates: ir.Value, reduction: str = "none"
    ) -> ir.Value:
        """Return `table` with other rows at the same places, on one thread: see `row_sums`."""
        lines, width = shape_of(updates)
        index = reshape(b, self.index, (lines, 1))
        if reduction == "none":
            return b.op("ScatterND", table, index, updates)
        wide = b.op("Expand", index, [lines, width])
        return b.op("ScatterElements", table, wide, updates, axis=0, reduction=reduction)


_Makers = Sequence[InputGradient]


def _replaced(b: Editor, s: _Scatter) -> _Makers:
    """dx = dy but 0 where updates went; du = dy[index]."""
    return (
        lambda: s.write(b, s.dy, b.zeros(s.updates)),
        lambda: s.read(b, s.dy),
    )


def _added(b: Editor, s: _Scatter) -> _Makers:
    """dx = dy; du = dy[index]."""
    return lambda: s.dy, lambda: s.read(b, s.dy)


def _multiplied(b: Editor, s: _Scatter) -> _Makers:
    """dx = dy * the product of all updates there; du = dy[index] * the product of the others.

    The product of the others is y / u, and where u is the only zero at its place, the product with
    a one in its stead.
    """

    def to_table() -> ir.Value:
        ones = b.op("Add", b.zeros(s.table), 1.0)
        return b.op("Mul", s.dy, s.write(b, ones, s.updates, "mul"))

    def to_updates() -> ir.Value:
        none, one = (number(b, value, s.updates) for value in (0.0, 1.0))
        zero = b.op("Equal", s.updates, none)
        zeros = s.read(b, s.write(b, b.zeros(s.table), cast(b, zero, s.updates), "add"))
        only = b.op("And", zero, b.op("Equal", zeros, one))
        without = s.read(b, s.write(b, s.table, b.op("Where", only, one, s.updates), "mul"))
        quotient = b.op("Div", s.read(b, s.y), b.op("Where", zero, one, s.updates))
        return b.op("Mul", s.read(b, s.dy), b.op("Where", only, without, quotient))

    return to_table, to_updates


def _chosen(b: Editor, s: _Scatter) -> _Makers:
    """dx = dy / n where x = y, du = dy[index] / n[index] where u = y[index], else 0.

    n is how many of x and the updates equal y at a place. As in PyTorch, NaN where y is.
    """

    def winners() -> tuple[ir.Value, ir.Value, ir.Value]:
        table = b.op("Equal", s.table, s.y)
        updates = b.op("Equal", s.updates, s.read(b, s.y))
        count = s.write(b, cast(b, table, s.dy), cast(b, updates, s.dy), "add")
        return table, updates, count

    def to_table() -> ir.Value:
        table, _, count = winners()
        return b.op("Div", selected(b, table, s.dy), count)

    def to_updates() -> ir.Value:
        _, updates, count = winners()
        return b.op("Div", selected(b, updates, s.read(b, s.dy)), s.read(b, count))

    return to_table, to_updates


_BY_REDUCTION: Mapping[str, Callable[[Editor, _Scatter], _Makers]] = MappingProxyType({
    "none": _replaced,
    "add": _added,
    "mul": _multiplied,
    "max": _chosen,
    "min": _chosen,
})  # fmt: skip


def _reduction(node: ir.Node) -> Callable[[Editor, _Scatter], _Makers]:
    attribute = node.attributes.get("reduction")
    return _BY_REDUCTION["none" if attribute is None else attribute.as_string()]


def _elements(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """By the reduction: see the formulas of `_BY_REDUCTION`."""
    table, index, updates = (operand(node, i) for i in range(3))
    axis = int_attribute(node, "axis")
    scatter = _Scatter(table, index, updates, axis, node.outputs[0], incoming(node, gradients))
    to_table, to_updates = _reduction(node)(b, scatter)
    return [to_table, None, to_updates]


def _rows(
    b: Editor, node: ir.Node, gradients: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """As ScatterElements with the rows of a matrix: the indexed axes are its first axis."""
    table, index, updates = (operand(node, i) for i in range(3))
    shape, depth = shape_of(table), shape_of(index)[-1]
    matrix = (prod(shape[:depth]), prod(shape[depth:]))
    lines = (prod(shape_of(index)[:-1]), matrix[1])

    def makers() -> _Makers:
        scatter = _RowScatter(
            reshape(b, table, matrix),
            flat_places(b, index, shape),
            reshape(b, updates, lines),
            0,
            reshape(b, node.outputs[0], matrix),
            reshape(b, incoming(node, gradients), matrix),
        )
        return _reduction(node)(b, scatter)

    return [
        lambda: reshape(b, makers()[0](), shape),
        None,
        lambda: reshape(b, makers()[1](), shape_of(updates)),
    ]


GRADIENTS: Mapping[str, GradientRule] = MappingProxyType({
    "ScatterElements": _elements,
    "ScatterND": _rows,
})  # fmt: skip
