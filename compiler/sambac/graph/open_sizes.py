"""What open sizes are called: inference makes up names where it cannot follow a size.

    x [batch, 8, 64],  y = Reshape(x, [-1, 4, 128]) [unk__7, 4, 128]    ->    y [batch, 4, 128]

Equal sizes are called alike (`name_alike`), so that whatever compares names sees more; results have
the names that the model declares for them (`name_open_sizes`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import onnx_ir as ir

from .size_sums import SizeSums, Sum

Sizes: TypeAlias = "tuple[int | ir.SymbolicDim, ...] | None"


def declared_sizes(graph: ir.Graph) -> tuple[Sizes, ...]:
    """Return what the shapes of the outputs of `graph` are said to be."""
    return tuple(None if one.shape is None else tuple(one.shape.dims) for one in graph.outputs)


def name_open_sizes(graph: ir.Graph, declared: Sequence[Sizes]) -> None:
    """Call sizes of outputs as they were `declared`, where they are none of the inputs', in place.

    That is said to people and nothing is concluded from it, as what is declared may be wrong: so
    it comes last. Inference makes up a name for each size that it cannot follow.
    """
    known = {
        dim.value for one in graph.inputs for dim in one.shape or () if not isinstance(dim, int)
    }
    for value, said in zip(graph.outputs, declared, strict=False):
        if value.shape is None or said is None or len(said) != len(value.shape):
            continue
        pairs = zip(value.shape.dims, said, strict=True)
        value.shape = ir.Shape([_named(dim, other, known) for dim, other in pairs])


def _named(
    dim: int | ir.SymbolicDim, said: int | ir.SymbolicDim, known: set[str | None]
) -> int | ir.SymbolicDim:
    inferred = isinstance(dim, int) or (dim.value is not None and dim.value in known)
    return dim if inferred or isinstance(said, int) or said.value is None else said


def name_alike(graph: ir.Graph, values: Iterable[ir.Value]) -> None:
    """Call equal sizes of `values` alike, in place: what the nodes of `graph` make, in order."""
    names = _SizeNames(graph)
    for value in values:
        value.shape = ir.Shape([names.of(value, axis) for axis in range(len(value.shape or ()))])


class _SizeNames:
    """The names of the sizes of a graph, from its first node on."""

    def __init__(self, graph: ir.Graph) -> None:
        self._sums = SizeSums(graph)
        self._by_sum: dict[frozenset[tuple[str, int]], str] = {}
        self._known: dict[str, int | str] = {}

    def of(self, value: ir.Value, axis: int) -> int | ir.SymbolicDim:
        """Return the size of `value` along `axis`: a number, or the first name of its equals."""
        assert value.shape is not None
        dim = value.shape[axis]
        if isinstance(dim, int) or dim.value is None:
            return dim
        known = self._known.get(dim.value)
        if known is None:
            known = self._first(dim.value, self._sums.size(value, axis))
            self._known[dim.value] = known
        return known if isinstance(known, int) else ir.SymbolicDim(known)

    def _first(self, name: str, found: Sum | None) -> int | str:
        if found is None:
            return name
        if found.keys() == {""} and found[""] > 0:
            return found[""]
        alone = [each for each, count in found.items() if each and count == 1]
        if len(found) == len(alone) == 1:
            return alone[0]
        return self._by_sum.setdefault(frozenset(found.items()), name)
