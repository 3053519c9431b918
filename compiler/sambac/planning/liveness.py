"""What is live where: what each section reads and writes, and how long each symbol lives.

The graph of symbols says which moments of the schedule touch what lies in memory. Symbols and
moments are its nodes. An edge leads from a moment to each symbol that it writes, and to a moment
from each symbol that it reads; its `count` is how many values that are. Lifetimes and traffic are
read off it, and so is who lives with whom: symbols of which neither is gone before the other comes.
That itself would be a graph with as many edges as pairs, so it is never built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

import networkx as nx

from .buffers import GraphCalls, Lifetime, PersistentBuffers
from .plans import FusionPlan, LiveSets, SectionPlan
from .view import DataflowView, ValueFacts, ValueRole


def live_sets_of(view: DataflowView, fusion: FusionPlan, plan: SectionPlan) -> tuple[LiveSets, ...]:
    """Return the live sets of every section of `plan`, all in deterministic order.

    Operators stand in topological order, inputs and weights in the order of first use, outputs in
    the order of definition. A cloned operator runs in every section that reads it, directly or
    through other cloned ones; what it reads is an input there.
    """
    position = {name: index for index, name in enumerate(view.ops)}
    members = [view.with_clones(fusion.ops_of(section.groups)) for section in plan.sections]
    ordered = [tuple(sorted(ops, key=position.__getitem__)) for ops in members]
    reads = [_reads(view, ops) for ops in ordered]
    wanted = {value for values in reads for value in values}
    wanted.update(view.outputs)
    return tuple(
        _live_sets(view, ops, values, wanted) for ops, values in zip(ordered, reads, strict=True)
    )


def _reads(view: DataflowView, ops: tuple[str, ...]) -> dict[str, None]:
    """Return the values that `ops` read and do not define, in the order of first use."""
    defined = {value for op in ops for value in view.ops[op].outputs}
    return {value: None for op in ops for value in view.ops[op].inputs if value not in defined}


def _live_sets(
    view: DataflowView, ops: tuple[str, ...], reads: dict[str, None], wanted: set[str]
) -> LiveSets:
    is_weight = {name: view.values[name].role is ValueRole.WEIGHT for name in reads}
    return LiveSets(
        ops=ops,
        live_in=tuple(name for name in reads if not is_weight[name]),
        weights=tuple(name for name in reads if is_weight[name]),
        live_out=tuple(value for op in ops for value in view.ops[op].outputs if value in wanted),
    )


class Moment(NamedTuple):
    """A position of the schedule: of a call, or of the caller, who gives before and takes after."""

    position: int
    is_call: bool


SymbolGraph: TypeAlias = "nx.DiGraph[str | Moment]"


def symbol_graph(
    calls: Sequence[LiveSets], graphs: Iterable[GraphCalls], persistent: PersistentBuffers
) -> SymbolGraph:
    """Return the graph of every symbol that is live where sections meet, in order of first use.

    `calls` are the live sets of the sections in the order of the schedule. The inputs of graphs
    come first, in their order; weights and states follow where a section first touches them,
    untouched states at last. An input or output is a symbol even where no section touches it.
    """
    graph: SymbolGraph = nx.DiGraph()
    spans = tuple(graphs)
    for span in spans:
        for name in span.inputs:
            _touch(graph, Moment(-1, False), name)
    for span in spans:
        for position in range(span.first_call, span.end):
            sets, moment = calls[position], Moment(position, True)
            for name in (*sets.live_in, *sets.weights):
                _touch(graph, persistent.symbol(name), moment)
            for name in sets.live_out:
                _touch(graph, moment, persistent.symbol(name))
        for name in span.outputs:
            _touch(graph, persistent.symbol(name), Moment(span.end, False))
        made = (name for sets in calls[span.first_call : span.end] for name in sets.live_out)
        for name in made:
            if name in persistent.kept:
                _touch(graph, persistent.symbol(name), Moment(span.end - 1, False), 0)
    graph.add_nodes_from(persistent.states)
    return graph


def lifetimes_of(
    graph: SymbolGraph, values: Mapping[str, ValueFacts], persistent: PersistentBuffers, calls: int
) -> dict[str, Lifetime]:
    """Return the lifetime of every symbol, in the order of the graph.

    It begins and ends with the first and last moment that touch the symbol; weights and states live
    throughout the schedule, which has so many `calls`.
    """
    forever = frozenset(persistent.states)
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
