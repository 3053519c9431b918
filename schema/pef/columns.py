"""Rows of objects as columns of numbers, and back.

A column translates a list of values, one per row, into what a field of `pef.fbs` holds: an array or
a table of further columns. The same description serves both directions, so that writer and
reader cannot disagree. Columns of many types stand in one table, hence the `Any`.
"""

# ruff: noqa: D102 - the methods of all columns are described once, in `Column`
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from itertools import accumulate, chain, pairwise, takewhile
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from .errors import PefError
from .structure import Array, Tree

NONE = 0xFFFF_FFFF  # as index: there is none

Node: TypeAlias = "Array | Tree"


class Pool:
    """Every distinct text once, in order of first use."""

    def __init__(self) -> None:
        self.indices: dict[str, int] = {}

    def index(self, text: str) -> int:
        """The index of `text`, which is added if it is new."""
        return self.indices.setdefault(text, len(self.indices))

    def encode(self) -> Tree:
        """The table `Texts`."""
        encoded = [text.encode() for text in self.indices]
        sizes = np.array([len(text) for text in encoded], "<u4")
        return {"size": sizes, "utf8": np.frombuffer(b"".join(encoded), "<u1")}


def decode_texts(tree: Tree) -> list[str]:
    """The texts of the table `Texts`."""
    sizes, blob = array(tree, "size"), array(tree, "utf8").tobytes()
    ends = [0, *accumulate(sizes.tolist())]
    if ends[-1] != len(blob):
        raise PefError("is damaged: its texts do not fill their space")
    try:
        return [blob[start:end].decode() for start, end in pairwise(ends)]
    except UnicodeDecodeError:
        raise PefError("is damaged: a text is not UTF-8") from None


def array(tree: Tree, name: str) -> Array:
    """The array `name` of a table."""
    found = tree[name]
    assert isinstance(found, np.ndarray)
    return found


def table(tree: Tree, name: str) -> Tree:
    """The table `name` of a table."""
    found = tree[name]
    assert isinstance(found, dict)
    return found


class Column(Protocol):
    """One value per row."""

    def encode(self, values: Sequence[Any], pool: Pool) -> Node:
        """What the file holds for `values`."""

    def decode(self, node: Any, rows: int, texts: Sequence[str]) -> list[Any]:
        """The values of `rows` rows. Raises `PefError` if there are more, or fewer."""


def row_count(node: Node) -> int:
    """How many rows a table has: its first column tells."""
    while isinstance(node, dict):
        node = next(iter(node.values()))
    return len(node)


def _values(node: Array, rows: int) -> list[Any]:
    """The values of a column that is one array."""
    if len(node) != rows:
        raise PefError(f"is damaged: a column has {len(node)} values for {rows} rows")
    found: list[Any] = node.tolist()
    return found


class Numbers(NamedTuple):
    """Numbers of the numpy type `dtype`."""

    dtype: str

    def encode(self, values: Sequence[Any], pool: Pool) -> Array:
        return np.array(values, self.dtype)

    def decode(self, node: Array, rows: int, texts: Sequence[str]) -> list[Any]:
        return _values(node, rows)


class Flags:
    """Yes or no."""

    def encode(self, values: Sequence[Any], pool: Pool) -> Array:
        return np.array(values, "<u1")

    def decode(self, node: Array, rows: int, texts: Sequence[str]) -> list[Any]:
        found = _values(node, rows)
        if any(value > 1 for value in found):
            raise PefError("is damaged: a flag is neither yes nor no")
        return [value == 1 for value in found]


class OptionalIndices:
    """Indices, or None."""

    def encode(self, values: Sequence[Any], pool: Pool) -> Array:
        return np.array([NONE if value is None else value for value in values], "<u4")

    def decode(self, node: Array, rows: int, texts: Sequence[str]) -> list[Any]:
        return [None if value == NONE else value for value in _values(node, rows)]


class Texts:
    """Texts, as indices into the pool."""

    def encode(self, values: Sequence[Any], pool: Pool) -> Array:
        return np.array([pool.index(value) for value in values], "<u4")

    def decode(self, node: Array, rows: int, texts: Sequence[str]) -> list[Any]:
        try:
            return [texts[index] for index in _values(node, rows)]
        except IndexError:
            raise PefError(f"is damaged: it has only {len(texts)} texts") from None


class Enums(NamedTuple):
    """Members of an enumeration."""

    kind: type[IntEnum]

    def encode(self, values: Sequence[Any], pool: Pool) -> Array:
        return np.array(values, "<u1")

    def decode(self, node: Array, rows: int, texts: Sequence[str]) -> list[Any]:
        members = {member.value: member for member in self.kind}
        try:
            return [members[value] for value in _values(node, rows)]
        except KeyError as error:
            raise PefError(f"has an unknown {self.kind.__name__}: {error}") from None


class Rows(NamedTuple):
    """Objects of one class: a table with a column per field, in the order of its constructor.

    With `optional`, an object may be None, which a NONE in the first column says. An older file
    lacks the columns appended since; then the defaults of the class hold. None lacks others.
    """

    make: Callable[..., Any]
    columns: Mapping[str, Column]
    optional: bool = False

    def encode(self, values: Sequence[Any], pool: Pool) -> Tree:
        if self.optional:
            absent = self.make(NONE, *[0] * (len(self.columns) - 1))
            values = [absent if value is None else value for value in values]
        return {
            name: column.encode(list(map(attrgetter(name), values)), pool)
            for name, column in self.columns.items()
        }

    def decode(self, node: Tree, rows: int, texts: Sequence[str]) -> list[Any]:
        names = [*takewhile(node.__contains__, self.columns)]
        if any(name in node for name in [*self.columns][len(names) :]):
            raise PefError(f"is damaged: it lacks the column {[*self.columns][len(names)]}")
        columns = [self.columns[name].decode(node[name], rows, texts) for name in names]
        made = list(map(self.make, *columns))
        if not self.optional:
            return made
        return [None if key == NONE else value for key, value in zip(columns[0], made, strict=True)]


class Pairs(NamedTuple):
    """Pairs of values."""

    first: Column
    second: Column

    def encode(self, values: Sequence[Any], pool: Pool) -> Tree:
        return {
            "first": self.first.encode([first for first, _ in values], pool),
            "second": self.second.encode([second for _, second in values], pool),
        }

    def decode(self, node: Tree, rows: int, texts: Sequence[str]) -> list[Any]:
        first = self.first.decode(node["first"], rows, texts)
        return list(zip(first, self.second.decode(node["second"], rows, texts), strict=True))


class Lists(NamedTuple):
    """A tuple of items per row; `key` is the field of the table that holds the items."""

    items: Column
    key: str = "rows"

    def encode(self, values: Sequence[Any], pool: Pool) -> Tree:
        counts = np.array([len(value) for value in values], "<u4")
        return {
            "count": counts,
            self.key: self.items.encode(list(chain.from_iterable(values)), pool),
        }

    def decode(self, node: Tree, rows: int, texts: Sequence[str]) -> list[Any]:
        counts = array(node, "count")
        if len(counts) != rows:
            raise PefError(f"is damaged: a column has {len(counts)} lists for {rows} rows")
        ends = [0, *accumulate(counts.tolist())]
        items = self.items.decode(node[self.key], ends[-1], texts)
        return [tuple(items[start:end]) for start, end in pairwise(ends)]


class Shapes:
    """Shapes: of sizes, names and unknown dimensions, or None."""

    def encode(self, values: Sequence[Any], pool: Pool) -> Tree:
        dims = [dim for shape in values if shape is not None for dim in shape]
        ranks = [-1 if shape is None else len(shape) for shape in values]
        names = [pool.index(dim) if isinstance(dim, str) else NONE for dim in dims]
        sizes = [dim if isinstance(dim, int) else -1 for dim in dims]
        return {
            "rank": np.array(ranks, "<i2"),
            "size": np.array(sizes, "<i8"),
            "name": np.array(names, "<u4"),
        }

    def decode(self, node: Tree, rows: int, texts: Sequence[str]) -> list[Any]:
        ranks = array(node, "rank").tolist()
        ends = [0, *accumulate(max(rank, 0) for rank in ranks)]
        sizes, names = array(node, "size").tolist(), array(node, "name").tolist()
        if len(ranks) != rows or not len(sizes) == len(names) == ends[-1]:
            raise PefError("is damaged: the dimensions of its shapes are miscounted")
        dims = [_dimension(size, name, texts) for size, name in zip(sizes, names, strict=True)]
        return [
            None if rank < 0 else tuple(dims[start:end])
            for rank, (start, end) in zip(ranks, pairwise(ends), strict=True)
        ]


def _dimension(size: int, name: int, texts: Sequence[str]) -> int | str | None:
    if size >= 0:
        return size
    if name == NONE:
        return None
    if name >= len(texts):
        raise PefError(f"is damaged: it has only {len(texts)} texts")
    return texts[name]
