"""Where in a graph an editor puts operators."""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from .uses import graph_of


class InsertionPoint:
    """A place in `graph`: before or behind one of its nodes, or at its end.

    What is put there lies in the order in which it is put. `once` remembers what was made there:
    nodes made later, which lie behind, may read it.
    """

    def __init__(
        self, graph: ir.Graph, before: ir.Node | None = None, behind: ir.Node | None = None
    ) -> None:
        self.graph = graph
        self._before = before
        self._behind = behind
        self._made: dict[tuple[object, ...], ir.Value] = {}

    @classmethod
    def before(cls, node: ir.Node) -> InsertionPoint:
        """Return the place before `node`."""
        return cls(graph_of(node), before=node)

    @classmethod
    def behind(cls, node: ir.Node) -> InsertionPoint:
        """Return the place behind `node`."""
        return cls(graph_of(node), behind=node)

    def put(self, node: ir.Node) -> None:
        """Put `node`, which is in no graph, behind what was put here before."""
        if self._before is not None:
            self.graph.insert_before(self._before, node)
        elif self._behind is not None:
            self.graph.insert_after(self._behind, node)
            self._behind = node
        else:
            self.graph.append(node)

    def once(self, key: tuple[object, ...], make: Callable[[], ir.Value]) -> ir.Value:
        """Return what `make` made when it was first called here for `key`."""
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]
