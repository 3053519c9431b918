"""Contracting operators to groups while the graph of groups stays free of cycles."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import networkx as nx


class Contraction:
    """A partition of a graph that can be executed part by part, and the graph of the parts.

    A part is named after one of its nodes. The parts are kept in a topological order, and that
    order is what makes merging cheap: merging makes a cycle exactly if a path leaves the merged
    parts and comes back, and such a path lies between the first and the last of them. Only that
    stretch is searched, and when the merge is possible only that stretch is put into a new order.
    Parts further apart than `reach` are never merged, which bounds the work by the number of
    attempts.
    """

    def __init__(self, graph: nx.DiGraph[str], order: Sequence[str], reach: int = 256) -> None:
        """Begin with every node alone; `order` is a topological order of `graph`."""
        self._graph: nx.DiGraph[str] = nx.DiGraph()
        self._graph.add_nodes_from(order)
        self._graph.add_edges_from(graph.edges)
        self._reach = reach
        self._of = {node: node for node in order}
        self._members = {node: [node] for node in order}
        self._order: list[str | None] = list(order)  # parts, and holes that merging left
        self._slot = {node: slot for slot, node in enumerate(order)}  # where each part stands

    def of(self, node: str) -> str:
        """Return the part that `node` is in."""
        return self._of[node]

    def in_order(self) -> list[list[str]]:
        """Return the nodes of all parts, in an order in which the parts can be executed."""
        return [self._members[part] for part in self._order if part is not None]

    def merge(self, parts: Sequence[str]) -> str | None:
        """Merge different parts into the first of them and return it; None if there is a cycle."""
        by_slot = sorted(parts, key=self._slot.__getitem__)
        first, last = self._slot[by_slot[0]], self._slot[by_slot[-1]]
        if last - first > self._reach:
            return None
        merged = frozenset(parts)
        before = self._leading_to(merged, first)
        if any(not merged.isdisjoint(self._graph.pred[part]) for part in before):
            return None
        target = by_slot[0]
        self._rearrange(range(first, last + 1), merged, before, target)
        for part in by_slot[1:]:
            nx.contracted_nodes(self._graph, target, part, self_loops=False, copy=False)
            joining = self._members.pop(part)
            self._members[target] += joining
            self._of.update(dict.fromkeys(joining, target))
        return target

    def _leading_to(self, merged: Collection[str], first: int) -> frozenset[str]:
        """Return the other parts behind the slot `first` from which paths lead to `merged`."""

        def outside(part: str) -> list[str]:
            return [
                source
                for source in self._graph.pred[part]
                if source not in merged and self._slot[source] > first
            ]

        edges = (nx.generic_bfs_edges(self._graph, part, outside) for part in merged)
        return frozenset(source for found in edges for _, source in found)

    def _rearrange(
        self, stretch: range, merged: Collection[str], before: Collection[str], target: str
    ) -> None:
        """Put what leads to `merged` in front of it, and the rest of the stretch behind."""
        slots = slice(stretch.start, stretch.stop)
        others = [part for part in self._order[slots] if part is not None and part not in merged]
        placed = [
            *(part for part in others if part in before),
            target,
            *(part for part in others if part not in before),
        ]
        self._order[slots] = [*placed, *[None] * (len(stretch) - len(placed))]
        for slot, part in enumerate(placed, start=stretch.start):
            self._slot[part] = slot
