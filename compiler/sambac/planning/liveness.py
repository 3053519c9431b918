"""What is live where: what sections read and write, how long symbols live, and in which buffers.

The graph of symbols says which moments of the schedule touch what lies in memory. Symbols and
moments are its nodes. An edge leads from a moment to each symbol that it writes, and to a moment
from each symbol that it reads; its `count` is how many values that are. Lifetimes and traffic are
read off it, and so is who lives with whom: symbols of which neither is gone before the other comes.
That itself would be a graph with as many edges as pairs, so it is never built.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import networkx as nx

from pef.symbols import RegionKind
from sambac.facts import Pack

from .plans import (
    Buffer,
    FusionPlan,
    GraphCalls,
    LiveSets,
    PersistentBuffers,
    SectionPlan,
)
from .view import DataflowView, Lifetime, Moment, SymbolGraph, ValueFacts, ValueRole


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


def memory_requests(
    values: Mapping[str, ValueFacts],
    lifetimes: Mapping[str, Lifetime],
    calls: int,
    persistent: PersistentBuffers,
    *,
    in_region: Mapping[str, RegionKind],
) -> tuple[Buffer, ...]:
    """Return a buffer for every symbol whose size is known at compile time.

    There is one for each pack and each shared region.

    `calls` is the length of the schedule. Buffers count calls from 0: a model input occupies its
    memory from the first call on. `in_region` is where the user wants some of them.
    """
    forever = frozenset(persistent.states)
    home = {name: pack for pack in persistent.packs for name in _spanned(pack)}
    together = {name for region in persistent.shared for name, _ in region.members}
    buffers = [_region(region, lifetimes, calls, in_region) for region in persistent.shared]
    for name, life in lifetimes.items():
        pack = home.get(name)
        if name in together:
            continue
        if pack is not None:
            if name == pack.name:
                lives = [lifetimes[other] for other in _spanned(pack) if other in lifetimes]
                packed = _packed(pack, lives, calls, name in forever)
                buffers.append(replace(packed, region=in_region.get(name)))
        elif values[name].nbytes is not None:
            facts = values[name]
            weight = facts.role is ValueRole.WEIGHT or name in forever
            buffers.append(_buffer(facts, life, calls, weight, in_region.get(name)))
    return tuple(buffers)


def _region(
    region: Pack,
    lifetimes: Mapping[str, Lifetime],
    calls: int,
    in_region: Mapping[str, RegionKind],
) -> Buffer:
    """Return the buffer of a shared region, which keeps its content between runs."""
    names = [region.name, *(name for name, _ in region.members)]
    return Buffer(
        name=region.name,
        size=region.size,
        first=0,
        last=max(calls - 1, 0),
        persistent=True,
        region=next((in_region[name] for name in names if name in in_region), None),
        traffic=sum(region.size * lifetimes[name].accesses for name, _ in region.members),
    )


def _spanned(pack: Pack) -> Iterable[str]:
    yield pack.name
    yield from (name for name, _ in pack.members)


def _buffer(
    facts: ValueFacts, life: Lifetime, calls: int, weight: bool, region: RegionKind | None
) -> Buffer:
    last_call = max(calls - 1, 0)
    size = facts.nbytes or 0
    return Buffer(
        name=facts.name,
        size=size,
        first=min(max(life.first, 0), last_call),
        last=min(max(life.last, 0), last_call),
        persistent=weight,
        weight=weight,
        region=region,
        traffic=size * life.accesses,
    )


def _packed(pack: Pack, lives: Sequence[Lifetime], calls: int, forever: bool) -> Buffer:
    last_call = max(calls - 1, 0)
    return Buffer(
        name=pack.name,
        size=pack.size,
        first=min(max(min(life.first for life in lives), 0), last_call),
        last=min(max(life.last for life in lives), last_call),
        persistent=forever,
        weight=forever,
        traffic=pack.size * max(life.accesses for life in lives),
    )
