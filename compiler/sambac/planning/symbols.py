"""The graph of symbols: what lies in memory, and which moments of the schedule touch it.

Symbols and moments are its nodes. An edge leads from a moment to each symbol that it writes, and to
a moment from each symbol that it reads; its `count` is how many values that are. Lifetimes and
traffic are read off it, and so is who lives with whom: symbols of which neither is gone before the
other comes. That itself would be a graph with as many edges as pairs, so it is never built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import networkx as nx

from .lifetimes import GraphCalls, Lifetime, Residents
from .plans import Border
from .view import ValueFacts, ValueRole


class Moment(NamedTuple):
    """A position of the schedule: of a call, or of the caller, who gives before and takes after."""

    position: int
    is_call: bool


SymbolGraph: TypeAlias = "nx.DiGraph[str | Moment]"


def symbol_graph(
    calls: Sequence[Border], graphs: Iterable[GraphCalls], residents: Residents
) -> SymbolGraph:
    """Return the graph of every symbol that crosses a section's border, in order of first use.

    `calls` are the borders of the sections in the order of the schedule. The inputs of graphs come
    first, in their order; weights and states follow where a section first touches them, untouched
    states at last. An input or output is a symbol even where no section touches it.
    """
    graph: SymbolGraph = nx.DiGraph()
    spans = tuple(graphs)
    for span in spans:
        for name in span.inputs:
            _touch(graph, Moment(-1, False), name)
    for span in spans:
        for position in range(span.first_call, span.end):
            border, moment = calls[position], Moment(position, True)
            for name in (*border.inputs, *border.weights):
                _touch(graph, residents.symbol(name), moment)
            for name in border.outputs:
                _touch(graph, moment, residents.symbol(name))
        for name in span.outputs:
            _touch(graph, residents.symbol(name), Moment(span.end, False))
        made = (name for border in calls[span.first_call : span.end] for name in border.outputs)
        for name in made:
            if name in residents.kept:
                _touch(graph, residents.symbol(name), Moment(span.end - 1, False), 0)
    graph.add_nodes_from(residents.states)
    return graph


def lifetimes_of(
    graph: SymbolGraph, values: Mapping[str, ValueFacts], residents: Residents, calls: int
) -> dict[str, Lifetime]:
    """Return the lifetime of every symbol, in the order of the graph.

    It begins and ends with the first and last moment that touch the symbol; weights and states live
    throughout the schedule, which has so many `calls`.
    """
    forever = frozenset(residents.states)
    accesses = dict(graph.degree(weight="count"))
    lifetimes = {}
    for name in graph:
        if isinstance(name, Moment):
            continue
        touched = [m for m in chain(graph.pred[name], graph.succ[name]) if isinstance(m, Moment)]
        always = name in forever or values[name].role is ValueRole.WEIGHT
        first, last = (-1, calls) if always else (min(touched).position, max(touched).position)
        lifetimes[name] = Lifetime(first, last, accesses[name])
    return lifetimes


def moved_by_calls(graph: SymbolGraph, symbol: str) -> int:
    """Return how often calls read and write a symbol, the caller's own accesses left out."""
    edges = (*graph.pred[symbol].items(), *graph.succ[symbol].items())
    return sum(
        int(edge["count"])
        for moment, edge in edges
        if isinstance(moment, Moment) and moment.is_call
    )


def _touch(graph: SymbolGraph, source: str | Moment, target: str | Moment, count: int = 1) -> None:
    """Add an access, in the order of the data."""
    if graph.has_edge(source, target):
        graph.edges[source, target]["count"] += count
    else:
        graph.add_edge(source, target, count=count)
