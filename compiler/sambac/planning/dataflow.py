"""The networkx graphs that planners work on, from operators to groups to sections.

In each of them an edge leads from what makes values to what reads them, and has a `Crossing` as its
attribute `crossing`. Fusion contracts operators to groups, partitioning contracts groups to
sections; both are the graph of operators with `contracted` nodes. All are frozen. Nodes and edges
stay in the order in which they were added, which no hash decides: equal models get equal plans.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TypeVar

import networkx as nx

Node = TypeVar("Node", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Crossing:
    """What flows along an edge: values, and the bytes of all of them.

    A size known only at run time counts as 0.
    """

    values: tuple[str, ...]
    nbytes: int


def dataflow(
    reads: Mapping[Node, Iterable[str]], maker: Mapping[str, Node], sizes: Mapping[str, int]
) -> nx.DiGraph[Node]:
    """Return a graph of the keys of `reads`, each with an edge from every `maker` of what it reads.

    Values without a maker, inputs and weights, are on no edge.
    """
    graph: nx.DiGraph[Node] = nx.DiGraph()
    graph.add_nodes_from(reads)
    for reader, values in reads.items():
        taken: dict[Node, list[str]] = {}
        for value in values:
            if value in maker:
                taken.setdefault(maker[value], []).append(value)
        for source, found in taken.items():
            graph.add_edge(source, reader, crossing=_crossing(found, sizes))
    nx.freeze(graph)
    return graph


def contracted(
    graph: nx.DiGraph[Node], parts: Sequence[Iterable[Node]], sizes: Mapping[str, int]
) -> nx.DiGraph[int]:
    """Return the graph of `parts`, which are numbered; each node of `graph` is in one of them.

    What flows within a part is on no edge.
    """
    home = {node: number for number, part in enumerate(parts) for node in part}
    taken: dict[tuple[int, int], dict[str, None]] = {}
    for source, reader, crossing in crossings(graph):
        edge = (home[source], home[reader])
        if edge[0] != edge[1]:
            taken.setdefault(edge, {}).update(dict.fromkeys(crossing.values))
    result: nx.DiGraph[int] = nx.DiGraph()
    result.add_nodes_from(range(len(parts)))
    for (first, second), values in taken.items():
        result.add_edge(first, second, crossing=_crossing(values, sizes))
    nx.freeze(result)
    return result


def crossings(graph: nx.DiGraph[Node]) -> Iterator[tuple[Node, Node, Crossing]]:
    """Yield the edges of a graph."""
    yield from graph.edges(data="crossing")


def given(graph: nx.DiGraph[Node], node: Node) -> Iterator[tuple[Node, Crossing]]:
    """Yield what each other node gives to `node`."""
    for source, edge in graph.pred[node].items():
        yield source, edge["crossing"]


def first_reaching(graph: nx.DiGraph[Node], starts: Iterable[Iterable[Node]]) -> dict[Node, int]:
    """Return the number of the first of `starts` from which each node can be reached, if any."""
    left: nx.DiGraph[Node] = nx.DiGraph(graph.edges)
    left.add_nodes_from(graph)
    found: dict[Node, int] = {}
    for number, nodes in enumerate(starts):
        reached = list(chain(*nx.bfs_layers(left, [node for node in nodes if node in left])))
        found.update(dict.fromkeys(reached, number))
        left.remove_nodes_from(reached)  # what they lead to is found already
    return found


def _crossing(values: Iterable[str], sizes: Mapping[str, int]) -> Crossing:
    found = tuple(values)
    return Crossing(found, sum(sizes[value] for value in found))


def depth_first(graph: nx.DiGraph[str]) -> list[str]:
    """Order operators so that each directly follows the last thing that it waits for.

    The longest way to an operator comes first: what short branches hold is then needed at once.
    """
    generations = enumerate(nx.topological_generations(graph))
    depth = {name: number for number, names in generations for name in names}
    waits: nx.DiGraph[str] = nx.DiGraph()
    # The search begins at what nothing waits for, in the order of the graph.
    waits.add_nodes_from(name for name in graph if not graph.out_degree(name))
    waits.add_edges_from((name, before) for name in graph for before in graph.pred[name])
    return list(
        nx.dfs_postorder_nodes(
            waits, sort_neighbors=lambda names: sorted(names, key=depth.__getitem__)[::-1]
        )
    )
