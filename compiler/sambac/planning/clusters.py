"""Merging operators into clusters while the graph of clusters stays free of cycles."""

from __future__ import annotations

from collections.abc import Sequence

_HOLE = -1


class Clusters:
    """A partition of numbered operators that can be executed cluster by cluster.

    The clusters are kept in a topological order, and that order is what makes merging cheap:
    merging makes a cycle exactly if a path leaves the merged clusters and comes back, and such a
    path lies between the first and the last of them. Only that stretch is searched, and when
    the merge is possible only that stretch is put into a new order. Clusters further apart than
    `reach` are never merged, which bounds the work by the number of attempts.
    """

    def __init__(self, preds: Sequence[Sequence[int]], reach: int = 256) -> None:
        """Begin with every operator alone; `preds[i]` are operators before `i`, all below `i`."""
        self._preds = preds
        self._reach = reach
        self._of = list(range(len(preds)))
        self._members: list[list[int]] = [[op] for op in range(len(preds))]
        self._order = list(range(len(preds)))  # clusters, and holes that merging left
        self._slot = list(range(len(preds)))  # where each cluster stands in `_order`

    def of(self, op: int) -> int:
        """Return the cluster that `op` is in."""
        return self._of[op]

    def members(self, cluster: int) -> list[int]:
        """Return the operators of a cluster, in ascending order."""
        return sorted(self._members[cluster])

    def in_order(self) -> list[list[int]]:
        """Return the members of all clusters, in an order in which they can be executed."""
        return [self.members(cluster) for cluster in self._order if cluster != _HOLE]

    def merge(self, clusters: Sequence[int]) -> int | None:
        """Merge different clusters into one and return it; None if that is not possible."""
        slots = [self._slot[cluster] for cluster in clusters]
        first, last = min(slots), max(slots)
        if last - first > self._reach:
            return None
        merged = set(clusters)
        before = self._ways_in(merged, first)
        if before is None:
            return None
        target = min(clusters)
        self._rearrange(first, last, merged, before, target)
        for cluster in merged - {target}:
            self._members[target] += self._members[cluster]
            for op in self._members[cluster]:
                self._of[op] = target
            self._members[cluster] = []
        return target

    def _ways_in(self, merged: set[int], first: int) -> set[int] | None:
        """Return what in the stretch leads to `merged`, or None if it also comes from there."""
        found: set[int] = set()
        pending = list(merged)
        while pending:
            cluster = pending.pop()
            for op in self._members[cluster]:
                for pred in self._preds[op]:
                    source = self._of[pred]
                    if source in merged:
                        if cluster not in merged:
                            return None
                    elif source not in found and self._slot[source] > first:
                        found.add(source)
                        pending.append(source)
        return found

    def _rearrange(
        self, first: int, last: int, merged: set[int], before: set[int], target: int
    ) -> None:
        """Put what leads to `merged` in front of it, and the rest of the stretch behind."""
        stretch = [cluster for cluster in self._order[first : last + 1] if cluster != _HOLE]
        others = [cluster for cluster in stretch if cluster not in merged]
        placed = [
            *(cluster for cluster in others if cluster in before),
            target,
            *(cluster for cluster in others if cluster not in before),
        ]
        holes = [_HOLE] * (last + 1 - first - len(placed))
        self._order[first : last + 1] = placed + holes
        for slot, cluster in enumerate(placed, start=first):
            self._slot[cluster] = slot
