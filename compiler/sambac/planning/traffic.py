"""How many bytes cross between sections, and how many have to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from .resources import Limits
from .view import DataflowView

Reads = Mapping[str, tuple[str, ...]]


def traffic_between(view: DataflowView, reads: Reads, sections: Sequence[Sequence[str]]) -> int:
    """Return the bytes that `sections`, given by their operators, pass on through memory.

    A value counts once for each section that reads it without making it, and once for being
    written, unless it is an output of the model and would be written anyway.
    """
    home = {op: index for index, ops in enumerate(sections) for op in ops}
    returned = set(view.outputs)
    total = 0
    for value, readers in _readers(reads).items():
        maker = view.producer.get(value)
        if maker is not None:
            away = {home[op] for op in readers} - {home[maker]}
            writes = 1 if away and value not in returned else 0
            total += (len(away) + writes) * (view.values[value].nbytes or 0)
    return total


def lower_bound(view: DataflowView, reads: Reads, sections: int, limits: Limits) -> int:
    """Return traffic that no cut into so many sections can go below.

    Every way to cut a graph into single operators gives the same traffic. With fewer sections two
    arguments hold, and the better one counts: what flows must fit the double buffers of all
    sections or cross; and the sections of one connected graph are linked by values that cross.
    """
    if sections == len(reads):
        return traffic_between(view, reads, [[op] for op in reads])
    readers = _readers(reads)
    returned = set(view.outputs)
    flows = [
        _Flow(value, view.values[value].nbytes or 0, len(ops), int(value not in returned))
        for value, ops in readers.items()
        if value in view.producer
    ]
    graph: nx.Graph[str] = nx.Graph()
    graph.add_nodes_from(reads)
    graph.add_edges_from((view.producer[f.value], op) for f in flows for op in readers[f.value])
    links = sections - nx.number_connected_components(graph)
    on_chip = sections * limits.pmus * limits.pmu_bytes // 2
    return max(_by_capacity(flows, on_chip), _by_links(flows, links))


@dataclass(frozen=True, slots=True)
class _Flow:
    """A value between operators; `writes` is 0 if the model returns it, so it is written anyway."""

    value: str
    size: int
    readers: int
    writes: int

    @property
    def least_per_read(self) -> int:
        """The least that one crossing costs: its read, and its share of the write."""
        return self.size * (self.readers + self.writes) // self.readers


def _by_capacity(flows: Sequence[_Flow], on_chip: int) -> int:
    """What no buffer holds is read at least once, and written unless the model returns it."""
    excess = sum(flow.size for flow in flows) - on_chip
    without_write = sum(flow.size for flow in flows if not flow.writes)
    return max(excess, 0) + max(excess - without_write, 0)


def _by_links(flows: Sequence[_Flow], links: int) -> int:
    """Sections hang together by at least so many crossings; take the cheapest there are.

    A value can cross to at most as many sections as it has readers.
    """
    total = 0
    for flow in sorted(flows, key=lambda flow: flow.least_per_read):
        taken = min(max(links, 0), flow.readers)
        total += taken * flow.least_per_read
        links -= taken
    return total


def _readers(reads: Reads) -> dict[str, list[str]]:
    readers: dict[str, list[str]] = {}
    for op, values in reads.items():
        for value in values:
            readers.setdefault(value, []).append(op)
    return readers
