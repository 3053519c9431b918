"""How many bytes cross between sections, and how many have to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import networkx as nx

from .dataflow import Node, crossings
from .resources import Limits
from .view import DataflowView


def traffic_of(view: DataflowView, sections: nx.DiGraph[Node]) -> int:
    """Return the bytes that `sections`, which are contracted operators, pass on through memory.

    A value counts once for each section that reads it without making it, and once for being
    written, unless it is an output of the model and would be written anyway.
    """
    passed = [crossing for _, _, crossing in crossings(sections)]
    written = {value for crossing in passed for value in crossing.values} - set(view.outputs)
    return sum(crossing.nbytes for crossing in passed) + sum(view.sizes[value] for value in written)


def lower_bound(view: DataflowView, sections: int, limits: Limits) -> int:
    """Return traffic that no cut into so many sections can go below.

    Every way to cut a graph into single operators gives the same traffic. With fewer sections two
    arguments hold, and the better one counts: what flows must fit the double buffers of all
    sections or cross; and the sections of one connected graph are linked by values that cross.
    """
    graph = view.placed
    if sections == len(graph):
        return traffic_of(view, graph)
    readers = Counter(value for _, _, crossing in crossings(graph) for value in crossing.values)
    returned = set(view.outputs)
    flows = [
        _Flow(value, view.sizes[value], count, int(value not in returned))
        for value, count in readers.items()
    ]
    links = sections - nx.number_weakly_connected_components(graph)
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
