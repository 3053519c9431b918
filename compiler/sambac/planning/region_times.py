"""What a run of the schedule takes with symbols in one region or another.

The graph of traffic has buffers and calls as its nodes; its edges say what a call moves to and from
a buffer: who is read where, how often, and together with whom. `RegionTimes` has its edges as
arrays, so that one look at all of them tells what it would change to move each buffer.

Sums run in a fixed order, so that they are the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import NamedTuple, TypeAlias

import networkx as nx
import numpy as np
import numpy.typing as npt

from pef.symbols import RegionKind
from sambac.arch import Arch

from .resources import Demand

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Flow: TypeAlias = tuple[int, bool]
"""What one call moves at once: its number, and whether that is what it keeps on chip as a whole."""
TrafficGraph: TypeAlias = "nx.Graph[str | Flow]"

NOWHERE = ""
"""The buffer of values without one, whose size is known only at run time."""


class Moved(NamedTuple):
    """The bytes of all values that are moved, and of the largest one."""

    nbytes: int
    largest: int


def traffic_graph(
    demands: Iterable[Demand], buffer_of: Callable[[str], str], known: Collection[str]
) -> TrafficGraph:
    """Return the graph of buffers, by name, and of flows.

    `demands` are those of all calls in their order. Values in no buffer that is `known` count as in
    `NOWHERE`.
    """
    graph: TrafficGraph = nx.Graph()
    graph.add_nodes_from([*known, NOWHERE])
    for call, demand in enumerate(demands):
        for held, moved in ((True, demand.held), (False, demand.streams)):
            flow: Flow = (call, held)
            # What is computed meanwhile hides what streams.
            floor, fixed = (0.0, 0.0) if held else (demand.compute, demand.fixed)
            graph.add_node(flow, floor=floor, fixed=fixed, each=demand.each)
            for value, nbytes in moved.items():
                found = buffer_of(value)
                buffer = found if found in known else NOWHERE
                edges = graph.get_edge_data(flow, buffer, {"moved": Moved(0, 0)})
                before = edges["moved"]
                after = Moved(before.nbytes + nbytes, max(before.largest, nbytes))
                graph.add_edge(flow, buffer, moved=after)
    return graph


def added(where: Ints, amounts: Floats, count: int) -> Floats:
    """Return the sum of the amounts with each number below `count`, added up in their order."""
    return np.bincount(where, amounts, count).astype(np.float64, copy=False)


@dataclass(frozen=True)
class RegionTimes:
    """The edges of a graph of traffic as arrays: what flow, of which buffer, and how many bytes.

    `names` are the buffers. A flow takes at least its `floor`, in seconds, and its largest value
    at least its bytes over `stream` (None if nothing limits one stream); a run takes `fixed` beside
    all flows. `rates` are bytes per second of each region, None where not known, `main` is where
    values lie that have no buffer.
    """

    names: tuple[str, ...]
    flow: Ints
    buffer: Ints
    nbytes: Floats
    largest: Floats
    floor: Floats
    fixed: float
    stream: Floats | None
    rates: Mapping[RegionKind, float | None]
    main: RegionKind

    @classmethod
    def of(cls, graph: TrafficGraph, arch: Arch) -> RegionTimes:
        """Return the arrays of a graph, on a device."""
        names = [node for node in graph if isinstance(node, str)]
        flows = [(node, data) for node, data in graph.nodes(data=True) if not isinstance(node, str)]
        position = {name: number for number, name in enumerate(names)}
        edges = [
            (number, position[buffer], *data["moved"])
            for number, (flow, _) in enumerate(flows)
            for buffer, data in graph.adj[flow].items()
            if isinstance(buffer, str)
        ]
        table = np.array(edges, dtype=np.int64).reshape(len(edges), 4)
        stream, each = arch.stream_bandwidth, np.array([data["each"] for _, data in flows])
        return cls(
            names=tuple(names),
            flow=table[:, 0],
            buffer=table[:, 1],
            nbytes=table[:, 2].astype(np.float64),
            largest=table[:, 3].astype(np.float64),
            floor=np.array([data["floor"] for _, data in flows]),
            fixed=fsum(data["fixed"] for _, data in flows),
            stream=None if stream is None else stream.value * each,
            rates={kind: arch.speed(kind) for kind in arch.regions},
            main=arch.main_memory,
        )

    @cached_property
    def number(self) -> Mapping[str, int]:
        """The numbers of buffers, by name."""
        return {name: number for number, name in enumerate(self.names)}

    def homes(self, regions: Mapping[str, RegionKind]) -> Ints:
        """Return where each buffer lies, as numbers; `NOWHERE` lies in main memory."""
        return np.array([regions.get(name, self.main) for name in self.names], dtype=np.int64)

    def seconds(self, homes: Ints) -> float:
        """Return what one run of the schedule takes with buffers in these homes."""
        moving = np.zeros(len(self.floor))
        for kind in self.rates:
            moving += self._moving(kind, *self._use(homes, kind))
        return self.fixed + fsum(np.maximum(self.floor, moving).tolist())

    def linear(self, homes: Ints) -> Floats:
        """Return the seconds to move what each flow moves, were no single stream a limit."""
        kinds = homes[self.buffer]
        seconds = np.zeros(len(self.floor))
        for kind, rate in self.rates.items():
            if rate is not None:
                here = kinds == kind
                seconds += added(self.flow[here], self.nbytes[here], len(seconds)) / rate
        return seconds

    def _use(self, homes: Ints, kind: RegionKind) -> tuple[Floats, Floats]:
        """Return the bytes that each flow moves to and from a region, and of the largest value."""
        here = homes[self.buffer] == kind
        count = len(self.floor)
        nbytes = added(self.flow[here], self.nbytes[here], count)
        largest = np.zeros(count)
        if self.stream is not None:
            np.maximum.at(largest, self.flow[here], self.largest[here])
        return nbytes, largest

    def _moving(
        self, kind: RegionKind, nbytes: Floats, largest: Floats, flow: Ints | None = None
    ) -> Floats:
        """Return the seconds for so much at once; of all flows, or of those that are given."""
        rate = self.rates[kind]
        moving = np.zeros(len(nbytes)) if rate is None else nbytes / rate
        if self.stream is None:
            return moving
        return np.maximum(moving, largest / (self.stream if flow is None else self.stream[flow]))

    def changes(self, homes: Ints, near: RegionKind, far: RegionKind) -> Floats:
        """Return by how many seconds a run changes if one buffer alone moves to the other region.

        Of buffers that lie in neither, nothing useful.
        """
        used = {kind: self._use(homes, kind) for kind in self.rates}
        moving = {kind: self._moving(kind, *use) for kind, use in used.items()}
        before = np.zeros(len(self.floor))
        for each in moving.values():
            before += each
        after = (before - moving[near] - moving[far])[self.flow]
        leaves = homes[self.buffer] == near
        for kind, comes in ((near, ~leaves), (far, leaves)):
            nbytes = used[kind][0][self.flow] + np.where(comes, self.nbytes, -self.nbytes)
            largest = self._largest_after(kind, homes, used[kind][1][self.flow], comes)
            after = after + self._moving(kind, nbytes, largest, self.flow)
        floor = self.floor[self.flow]
        change = np.maximum(floor, after) - np.maximum(floor, before[self.flow])
        return added(self.buffer, change, len(self.names))

    def _largest_after(
        self, kind: RegionKind, homes: Ints, largest: Floats, comes: Bools
    ) -> Floats:
        """Return the largest value of each edge's flow in a region once its buffer came or left."""
        if self.stream is None:
            return largest
        order = self._by_size[homes[self.buffer[self._by_size]] == kind]
        flow = self.flow[order]
        leads = np.append(True, flow[1:] != flow[:-1])[: len(flow)]
        follows = np.append(flow[1:] == flow[:-1], False)[: len(flow)]
        second = np.where(follows, self.largest[np.roll(order, -1)], 0.0)
        left = largest.copy()
        left[order[leads]] = second[leads]
        return np.where(comes, np.maximum(largest, self.largest), left)

    @cached_property
    def _by_size(self) -> Ints:
        """The edges flow by flow, the largest value first."""
        return np.lexsort((-self.largest, self.flow))
