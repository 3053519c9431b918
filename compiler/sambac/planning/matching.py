"""Finding the operators that a fusion rule describes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import networkx as nx

from sambac.ops.family import qualified

from .rules import PatternNode, Rule
from .view import DataflowView

# Patterns have a handful of operators. Only values with very many readers need more steps than
# this, and then a later reader is as good as an earlier one.
_MAX_STEPS = 2000


@dataclass(frozen=True, slots=True)
class _Step:
    """Assign the next pattern node: a reader (or the maker) of what an earlier step assigned.

    `earlier` and `reads_it` say how it is found, `links` which other pairs of steps, from writer
    to reader, must be connected too.
    """

    op_types: frozenset[str]
    earlier: int
    reads_it: bool
    links: tuple[tuple[int, int], ...]


class Matcher:
    """Rules and the graph they are matched against.

    A match begins with the operators that come first in `order`, which are those with a place of
    their own. What they read through copies of clones is no part of a pattern. A cast that only
    rounds what an operator makes is no border: who reads it reads that operator too.
    """

    def __init__(self, rules: Sequence[Rule], view: DataflowView, order: Sequence[str]) -> None:
        self._rules = rules
        self._number = {name: number for number, name in enumerate(order)}
        self._types = {
            name: qualified(view.ops[name].domain, view.ops[name].op_type) for name in order
        }
        self._graph: nx.DiGraph[str] = nx.DiGraph(view.graph.edges)
        self._graph.add_nodes_from(order)
        self._graph.add_edges_from(
            (maker, reader)
            for cast, maker in view.rounds.items()
            for reader in view.placed.succ[cast]
        )
        self._graph.remove_nodes_from([name for name, op in view.ops.items() if op.cloned])
        self._by_type: dict[str, list[str]] = {}
        for name in order:
            self._by_type.setdefault(self._types[name], []).append(name)

    def matches(self, taken: set[str]) -> Iterator[tuple[Rule, tuple[str, ...]]]:
        """Yield matches of operators not in `taken`, the rules in their order.

        The caller adds the operators of each match that it accepts to `taken`. A match that it
        refuses is followed by smaller ones at the same place, without optional operators.
        """
        for rule in self._rules:
            for steps, root in self._starts(_plans(rule.pattern)):
                if root not in taken:
                    found = self._match(steps, root, taken)
                    if found is not None:
                        yield rule, found

    def _starts(self, variants: list[tuple[_Step, ...]]) -> Iterator[tuple[tuple[_Step, ...], str]]:
        """Yield the largest variant at every place it could begin, then the smaller ones."""
        for steps in variants:
            roots = (root for kind in steps[0].op_types for root in self._by_type.get(kind, ()))
            for root in sorted(roots, key=self._number.__getitem__):
                yield steps, root

    def _match(
        self, steps: tuple[_Step, ...], root: str, taken: set[str]
    ) -> tuple[str, ...] | None:
        """Assign operators to all steps, beginning with `root`; None if there is no way."""
        chosen = [root]
        choices = [self._choices(steps[1], chosen)]
        for _ in range(_MAX_STEPS):
            if len(chosen) == len(steps):
                return tuple(chosen)
            step = steps[len(chosen)]
            for op in choices[-1]:
                if self._agrees(step, chosen, op, taken):
                    chosen.append(op)
                    if len(chosen) < len(steps):
                        choices.append(self._choices(steps[len(chosen)], chosen))
                    break
            else:
                choices.pop()
                chosen.pop()
                if not choices:
                    return None
        return None

    def _choices(self, step: _Step, chosen: list[str]) -> Iterator[str]:
        around = self._graph.succ if step.reads_it else self._graph.pred
        return iter(around[chosen[step.earlier]])

    def _agrees(self, step: _Step, chosen: list[str], op: str, taken: set[str]) -> bool:
        if op in taken or op in chosen or self._types[op] not in step.op_types:
            return False
        assigned = [*chosen, op]
        return all(
            self._graph.has_edge(assigned[writer], assigned[reader])
            for writer, reader in step.links
        )


def variants_of(pattern: tuple[PatternNode, ...]) -> list[tuple[PatternNode, ...]]:
    """Return `pattern` with and without its optional nodes, the largest first.

    Where a node is left out, its parents are connected to its children. Patterns of fewer than
    two operators are not returned: there is nothing to fuse.
    """
    optional = [node.name for node in pattern if node.optional]
    variants = []
    for count in range(len(optional) + 1):
        for missing in combinations(optional, count):
            variant = pattern
            for name in missing:
                variant = _without(variant, name)
            if len(variant) > 1:
                variants.append(variant)
    return variants


def _without(pattern: tuple[PatternNode, ...], name: str) -> tuple[PatternNode, ...]:
    heirs = next(node.children for node in pattern if node.name == name)
    return tuple(
        PatternNode(
            node.name,
            node.op_types,
            tuple(
                dict.fromkeys(
                    heir
                    for child in node.children
                    for heir in (heirs if child == name else (child,))
                )
            ),
        )
        for node in pattern
        if node.name != name
    )


def _plans(pattern: tuple[PatternNode, ...]) -> list[tuple[_Step, ...]]:
    """Return the steps of every variant that is still in one piece, the largest first."""
    variants = variants_of(pattern)
    plans = [(_steps(variant), len(variant)) for variant in variants]
    return [steps for steps, size in plans if len(steps) == size]


def _steps(pattern: tuple[PatternNode, ...]) -> tuple[_Step, ...]:
    """Order a pattern so that each node after the first is connected to one before it."""
    nodes = {node.name: node for node in pattern}
    edges = [(node.name, child) for node in pattern for child in node.children]
    order = [pattern[0].name]
    steps = [_Step(pattern[0].op_types, 0, True, ())]
    while len(order) < len(pattern):
        found = next(
            ((w, r) for w, r in edges if (w in order) != (r in order)),
            None,
        )
        if found is None:  # leaving out a node has left parts without a connection
            break
        writer, reader = found
        reads_it = writer in order
        new, known = (reader, writer) if reads_it else (writer, reader)
        order.append(new)
        at = {name: index for index, name in enumerate(order)}
        links = tuple((at[w], at[r]) for w, r in edges if new in (w, r) and w in at and r in at)
        steps.append(_Step(nodes[new].op_types, at[known], reads_it, links))
    return tuple(steps)
