"""Rows that a mask selects, and operators that compute each row from the same row alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import sympy
import torch
from torch import fx

from .element_losses import is_of_elements

_aten = torch.ops.aten
INDEX, CAT = _aten.index.Tensor, _aten.cat.default
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
_MOVES = (
    _aten._to_copy.default,
    _aten.alias.default,
    _aten.clone.default,
    _aten.detach.default,
    _aten.dropout.default,
    _aten.expand.default,
    _aten.permute.default,
    _aten.select.int,
    _aten.slice.Tensor,
    _aten.squeeze.default,
    _aten.squeeze.dim,
    _aten.squeeze.dims,
    _aten.transpose.int,
    _aten.unsqueeze.default,
)
ALIKE = (
    _aten._to_copy.default,
    _aten.clone.default,
    _aten.detach.default,
    _aten.floor_divide.default,
    _aten.ones_like.default,
    _aten.where.Scalar,
    _aten.where.ScalarOther,
    _aten.where.ScalarSelf,
    _aten.zeros_like.default,
)
"""Operators of one element at a time that PyTorch does not call so."""
_ACROSS: Mapping[object, int] = {
    **dict.fromkeys(
        (
            _aten.amax.default,
            _aten.amin.default,
            _aten.argmax.default,
            _aten.cumsum.default,
            _aten.log_softmax.int,
            _aten.logsumexp.default,
            _aten.mean.dim,
            _aten.softmax.int,
            _aten.std.correction,
            _aten.sum.dim_IntList,
            _aten.var.correction,
        ),
        1,
    ),
    **dict.fromkeys(
        (
            _aten.cosine_similarity.default,
            _aten.linalg_vector_norm.default,
            _aten.norm.ScalarOpt_dim,
        ),
        2,
    ),
}
"""Operators along other axes, and which of their arguments names these."""
FACTORIES = (
    _aten.full.default,
    _aten.full_like.default,
    _aten.new_full.default,
    _aten.new_ones.default,
    _aten.new_zeros.default,
    _aten.ones.default,
    _aten.ones_like.default,
    _aten.zeros.default,
    _aten.zeros_like.default,
)
_PRODUCTS = (_aten.linear.default, _aten.matmul.default, _aten.mm.default)
_NORMALISATIONS = (_aten.layer_norm.default, _aten.rms_norm.default)
LOOK_UPS = (_aten.index_select.default, INDEX)
SIZED = (*_VIEWS, *FACTORIES, _aten.expand.default, _aten.slice.Tensor)
"""Operators whose arguments may be sizes that masks decide."""
SELECTED = -1
"""Stands for what the mask selects among numbers of rows."""
Order = tuple[int, ...]


@dataclass
class SelectedRows:
    """What is computed of the rows that equal `masks` select: `orders` of parts, `axes` of rows.

    An order of None is that of rows that are all the same. `checks` are sizes, and what reads
    nothing else.
    """

    masks: Sequence[fx.Node]
    symbols: set[object] = field(default_factory=set)
    axes: dict[fx.Node, int] = field(default_factory=dict)
    orders: dict[fx.Node, Order | None] = field(default_factory=dict)
    found: list[fx.Node] = field(default_factory=list)
    checks: list[fx.Node] = field(default_factory=list)

    @property
    def length(self) -> int:
        """How many rows there are to select from."""
        return int(self.masks[0].meta["val"].numel())

    def is_open(self, size: object) -> bool:
        """Tell whether `size` is one that the masks decide."""
        return isinstance(size, torch.SymInt) and bool(self.symbols & size.node.expr.free_symbols)

    def is_size(self, node: fx.Node) -> bool:
        """Tell whether `node` is one."""
        return self.is_open(node.meta.get("val"))

    def number(self, size: Any) -> Any:
        """Return `size`, a line, where all rows are kept."""
        line = self.line(size)
        return size if line is None else line[0] * self.length + line[1]

    def line(self, size: Any) -> tuple[int, int] | None:
        """Return a and b if `size` is a * n + b of n rows that are selected."""
        if not self.is_open(size):
            return (0, size) if isinstance(size, int) else None
        n = sympy.Symbol("n")
        found = sympy.expand(size.node.expr.xreplace(dict.fromkeys(self.symbols, n)))
        if found.free_symbols != {n} or not found.is_polynomial(n):
            return None
        each, more = found.coeff(n, 1), found.coeff(n, 0)
        return (int(each), int(more)) if found == each * n + more else None

    def are_same(self, one: Any, other: Any) -> bool:
        """Tell whether two sizes are the same, of masks that are equal."""
        line = self.line(one)
        return line is not None and line == self.line(other)

    def axis(self, node: fx.Node) -> int | None:
        """Return the one axis of `node` whose size the masks decide, if as a line."""
        axes = [at for at, size in enumerate(node.meta["val"].shape) if self.is_open(size)]
        is_one = len(axes) == 1 and self.line(node.meta["val"].shape[axes[0]]) is not None
        return axes[0] if is_one else None

    def members(self, node: fx.Node) -> list[fx.Node]:
        """Return what `node` reads that has rows."""
        return [item for item in node.all_input_nodes if item in self.axes]

    def order(self, nodes: Sequence[fx.Node]) -> Order | None:
        """Return the order of rows that `nodes` have, None if they are alike or differ in it."""
        orders = {self.orders[item] for item in nodes} - {None}
        return orders.pop() if len(orders) == 1 else None


def selects(node: fx.Node, masks: Sequence[fx.Node]) -> bool:
    """Tell whether `node` selects rows of a tensor of known sizes, by one of `masks`."""
    if node.target is not INDEX or not isinstance(node.args[1], list):
        return False
    *others, last = node.args[1]
    if not isinstance(last, fx.Node) or last not in masks or any(others):
        return False
    source: torch.Tensor = arguments(node)[0].meta["val"]
    return has_known_sizes(source) and 0 not in source.shape


def has_known_sizes(value: torch.Tensor) -> bool:
    """Tell whether all sizes of `value` are numbers."""
    return all(isinstance(size, int) for size in value.shape)


def arguments(node: fx.Node) -> list[Any]:
    """Return what `node` is given by position."""
    return [*node.args]


def axis_of(node: fx.Node) -> int:
    """Return the axis that the second argument of `node` names, counted from the first."""
    axis = arguments(node)[1] if len(node.args) > 1 else 0
    return int(axis % node.meta["val"].dim())


def axes_along(node: fx.Node) -> list[int] | None:
    """Return the axes along which `node` computes, all where it names none; None if not known."""
    place = _ACROSS.get(node.target)
    rank = node.all_input_nodes[0].meta["val"].dim()
    if place is None:
        return None
    named = arguments(node)[place] if len(node.args) > place else node.kwargs.get("dim")
    if named is None or named == []:
        return [*range(rank)] if node.target is not _aten.argmax.default else None
    dims = named if isinstance(named, (list, tuple)) else [named]
    return [dim % rank for dim in dims]


def is_of_rows(node: fx.Node, rows: SelectedRows, members: Sequence[fx.Node], axis: int) -> bool:
    """Tell whether `node` computes each row along `axis` from the same row of `members` alone."""
    target, shape = node.target, node.meta["val"].shape
    first, given = members[0], members[0].meta["val"].shape
    same = rows.are_same(given[rows.axes[first]], shape[axis])
    if target in _VIEWS:
        return same and prod(shape[:axis]) == prod(given[: rows.axes[first]])
    if target in _MOVES:
        return same
    if target in _ACROSS:
        along = axes_along(node)
        of_one = len({rows.axes[item] for item in members}) == 1
        return same and of_one and along is not None and rows.axes[first] not in along
    if target in _PRODUCTS:
        is_left = members == [node.args[0]] and axis < len(shape) - 1
        return same and is_left and arguments(node)[1].meta["val"].dim() <= len(("rows", "columns"))
    if target in _NORMALISATIONS:
        return same and members == [node.args[0]] and axis < len(shape) - len(arguments(node)[1])
    if target is _aten.gather.default:
        places = {rows.axes.get(item) for item in node.all_input_nodes}
        return same and places == {axis} and axis_of(node) != axis
    if target in LOOK_UPS:
        return _looks_up(node, rows, members)
    if target is CAT:
        return all(rows.axes.get(part) == axis for part in arguments(node)[0])
    return _is_pointwise(node) and _are_level(rows, members, len(shape) - axis)


def _is_pointwise(node: fx.Node) -> bool:
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    return torch.Tag.pointwise in target.tags or target in ALIKE or is_of_elements(node)


def _are_level(rows: SelectedRows, members: Sequence[fx.Node], behind: int) -> bool:
    """Tell whether `members` have as many axes behind that of rows."""
    return {item.meta["val"].dim() - rows.axes[item] for item in members} == {behind}


def _looks_up(node: fx.Node, rows: SelectedRows, members: Sequence[fx.Node]) -> bool:
    """Tell whether `node` reads by indices that are rows from a tensor of known sizes."""
    *others, index = arguments(node)[1] if node.target is INDEX else [arguments(node)[2]]
    return (
        not any(others)
        and list(members) == [index]
        and rows.orders[index] is not None
        and index.meta["val"].dim() == 1
        and not index.meta["val"].is_floating_point()
        and index.meta["val"].dtype is not torch.bool
    )
