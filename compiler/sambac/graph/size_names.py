"""One name for sizes that are equal, where shape inference made up several.

    x [batch, 8, 64],  y = Reshape(x, [-1, 4, 128]) [unk__7, 4, 128]    ->    y [batch, 4, 128]

Whatever compares sizes by their names sees more afterwards.
"""

from __future__ import annotations

import onnx_ir as ir

from .size_sums import SizeSums, Sum


def name_alike(graph: ir.Graph) -> None:
    """Call equal sizes of what the nodes of `graph` make alike, in place; nodes are in order."""
    names = _Names(graph)
    for node in graph:
        for value in node.outputs:
            shape = value.shape
            if shape is not None and not shape.is_static():
                dims = [names.of(value, axis) for axis in range(len(shape))]
                value.shape = ir.Shape(dims)


class _Names:
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
