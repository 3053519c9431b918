"""The memory plan: a region and an address for every buffer, and how full each region gets.

A buffer goes where the user wants it. Of the others all go to HBM, and what does not fit there
spills to DDR, as `pressure` chooses; on a device without HBM they go to DDR.

Persistent buffers lie at the bottom of their region, from address 0, and share with nobody.
Above them transient ones share addresses where their lifetimes do not meet. A lifetime includes
both its ends: what a call writes never lies over what it reads.

Every buffer starts at a multiple of `ALIGNMENT` and takes a multiple of it. All numbers of a
region count these rounded sizes, so that `used` and `peak_live` compare like with like.

Buffers that never meet, not even over others, are planned apart: those of an evaluation beside
those of the training step before it. First fit in several orders, the best of which is improved by
`ejection` unless its peak is already the largest sum of live bytes, below which no plan can go.
Where that plan is too large for its region, only for the gaps in it, `packing` looks for one that
fits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

import networkx as nx
import numpy as np

from pef.program import PlacementReason, Region, RegionKind
from pef.text import human_bytes
from sambac.errors import CompileError, InternalError

from .ejection import lower_peak
from .packing import fit_below
from .plans import Buffer, MemoryPlan, Placement
from .pressure import Ints, Neighbours, Pressure, Spans, choose_spills

ALIGNMENT = 64

_LARGEST_NAMED = 5


@dataclass(frozen=True)
class _Layout:
    """One region's buffers and their addresses."""

    buffers: tuple[Buffer, ...]
    addresses: tuple[int, ...]
    persistent: int
    used: int
    peak_live: int


def plan_memory(buffers: Sequence[Buffer], capacities: Mapping[RegionKind, int]) -> MemoryPlan:
    """Place every buffer in a region and at an address.

    `capacities` are the bytes of each region the device has. Raises `CompileError` when a user
    asks for a region the device does not have, or when a region is too small; the message says
    by how much and names the largest buffers.
    """
    _check_requests(buffers, capacities)
    home = _home(capacities)
    members: dict[RegionKind, list[Buffer]] = {kind: [] for kind in sorted(capacities)}
    for buffer in buffers:
        members[home if buffer.region is None else buffer.region].append(buffer)
    layouts: dict[RegionKind, _Layout] = {}
    spilled: list[Buffer] = []
    if home is RegionKind.HBM and RegionKind.DDR in capacities:
        layouts[home], spilled = _fill_hbm(members[home], capacities[home])
        members[RegionKind.DDR] += spilled
    for kind in members:
        if kind not in layouts:
            layouts[kind] = _lay_out(members[kind], capacities[kind])
    _check_fit(layouts, capacities)
    return _plan(buffers, layouts, capacities, frozenset(buffer.name for buffer in spilled))


def _home(capacities: Mapping[RegionKind, int]) -> RegionKind:
    """Return where buffers go unless the user says otherwise: HBM where there is any, else DDR."""
    return RegionKind.HBM if capacities.get(RegionKind.HBM, 0) > 0 else RegionKind.DDR


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _check_requests(buffers: Sequence[Buffer], capacities: Mapping[RegionKind, int]) -> None:
    if len({buffer.name for buffer in buffers}) < len(buffers):
        raise InternalError("memory plan: two buffers have the same name")
    for buffer in buffers:
        if buffer.size < 0 or buffer.first > buffer.last:
            raise InternalError(f"memory plan: {buffer} has a negative size or lifetime")
    absent = sorted({b.region for b in buffers if b.region is not None} - capacities.keys())
    if absent:
        names = " and ".join(kind.name for kind in absent)
        has = ", ".join(kind.name for kind in sorted(capacities))
        raise CompileError(
            f"Buffers are to be placed in {names}, which this architecture does not have "
            f"(it has {has}): choose one of these regions, or another architecture."
        )


def _fill_hbm(buffers: list[Buffer], capacity: int) -> tuple[_Layout, list[Buffer]]:
    """Lay out what fits in HBM; return the layout and the buffers that spill."""
    sizes = [_aligned(buffer.size) for buffer in buffers]
    movable = [i for i, buffer in enumerate(buffers) if buffer.region is None and sizes[i]]
    budget, less = capacity, 0
    while True:
        spilled = set(choose_spills(buffers, sizes, movable, budget))
        # A long search for addresses is made once; with less to place quick plans do.
        limit = capacity if budget == capacity else None
        layout = _lay_out([b for i, b in enumerate(buffers) if i not in spilled], limit)
        if layout.used <= capacity or budget <= 0:
            break
        # The live bytes fit but gaps between the buffers do not: leave room for them.
        less = max(2 * less, layout.used - capacity)
        budget -= less
    return layout, [buffers[i] for i in sorted(spilled)]


def _lay_out(buffers: Sequence[Buffer], capacity: int | None) -> _Layout:
    """Give every buffer an address in one region, below `capacity` if that takes a search."""
    # An empty buffer needs an address but no bytes: it may lie anywhere.
    fixed = [buffer for buffer in buffers if buffer.persistent or not buffer.size]
    moving = [buffer for buffer in buffers if not buffer.persistent and buffer.size]
    *bottom, base = accumulate((_aligned(buffer.size) for buffer in fixed), initial=0)
    spans = Spans.of(
        [_aligned(buffer.size) for buffer in moving],
        [buffer.first for buffer in moving],
        [buffer.last for buffer in moving],
    )
    offsets = plan_offsets(spans, None if capacity is None else capacity - base)
    return _Layout(
        buffers=(*fixed, *moving),
        addresses=(*bottom, *(base + offset for offset in offsets.tolist())),
        persistent=base,
        used=base + peak_of(spans, offsets),
        peak_live=base + Pressure(spans).peak,
    )


def _check_fit(layouts: Mapping[RegionKind, _Layout], capacities: Mapping[RegionKind, int]) -> None:
    problems = [
        _excess(kind, layout, capacities[kind])
        for kind, layout in sorted(layouts.items())
        if layout.used > capacities[kind]
    ]
    if problems:
        raise CompileError(
            f"The model does not fit in memory: {'; '.join(problems)}. Use a smaller batch, "
            "an architecture with more memory, or another region for what was placed by hand."
        )


def _excess(kind: RegionKind, layout: _Layout, capacity: int) -> str:
    return (
        f"{kind.name} holds {human_bytes(capacity)} but {human_bytes(layout.used)} are needed, "
        f"{human_bytes(layout.used - capacity)} too many (largest: {_largest(layout.buffers)})"
    )


def _largest(buffers: Sequence[Buffer]) -> str:
    largest = sorted(buffers, key=lambda b: (-b.size, b.name))[:_LARGEST_NAMED]
    return ", ".join(f"{buffer.name} {human_bytes(buffer.size)}" for buffer in largest)


def _plan(
    buffers: Sequence[Buffer],
    layouts: Mapping[RegionKind, _Layout],
    capacities: Mapping[RegionKind, int],
    spilled: frozenset[str],
) -> MemoryPlan:
    placed = {
        buffer.name: Placement(
            kind, address, buffer.size, buffer.name in spilled, _reason(buffer, bool(spilled))
        )
        for kind, layout in layouts.items()
        for buffer, address in zip(layout.buffers, layout.addresses, strict=True)
    }
    regions = tuple(
        Region(kind, capacities[kind], layout.used, layout.persistent, layout.peak_live)
        for kind, layout in sorted(layouts.items())
    )
    return MemoryPlan({buffer.name: placed[buffer.name] for buffer in buffers}, regions)


def _reason(buffer: Buffer, short: bool) -> PlacementReason:
    """Return why a buffer lies where it does; `short` if there is no room for all in HBM."""
    if buffer.region is not None:
        return PlacementReason.USER
    return PlacementReason.POLICY if short else PlacementReason.ROOM


_NO_LIMIT = np.iinfo(np.int64).max


def plan_offsets(spans: Spans, ceiling: int | None = None) -> Ints:
    """Return an address for every span, with as low a peak as can be found quickly.

    All sizes have to be positive. Addresses are multiples of whatever all sizes are multiples of.
    Where that peak is above `ceiling`, and what lives at once is not, more work is spent on a plan
    below it.
    """
    bound = Pressure(spans).peak
    addresses = np.zeros(len(spans), dtype=np.int64)
    for indices in living_together(spans):
        together = spans.take(indices)
        planned = _plan_together(together, bound)
        if ceiling is not None and bound <= ceiling < peak_of(together, planned):
            fitting = fit_below(together, ceiling)
            planned = planned if fitting is None else fitting
        addresses[indices] = planned
    return addresses


def living_together(spans: Spans) -> list[Ints]:
    """Return the indices of spans, parted where nothing of one part lives while another does.

    Two spans are in one part if they are connected in the graph of who lives with whom. For that,
    each needs but one edge, to what lives longest of those that have begun before it.
    """
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(spans)))
    last = spans.last.tolist()
    longest: int | None = None
    for index in np.argsort(spans.first, kind="stable").tolist():
        if longest is not None and spans.first[index] <= last[longest]:
            graph.add_edge(longest, index)
        if longest is None or last[index] > last[longest]:
            longest = index
    return [np.array(sorted(part), dtype=np.int64) for part in nx.connected_components(graph)]


def _plan_together(spans: Spans, bound: int) -> Ints:
    """Return an address for every span, with a peak of `bound` or as low as can be found."""
    neighbours = Neighbours(spans)
    best = np.zeros(len(spans), dtype=np.int64)
    best_peak = None
    for order in placing_orders(spans).values():
        addresses = first_fit(spans, neighbours, order)
        peak = peak_of(spans, addresses)
        if best_peak is None or peak < best_peak:
            best, best_peak = addresses, peak
        if best_peak <= bound:
            return best
    return lower_peak(spans, neighbours, best, bound)


def peak_of(spans: Spans, addresses: Ints) -> int:
    """Return the highest end of a span."""
    return int((addresses + spans.sizes).max(initial=0))


def placing_orders(spans: Spans) -> Mapping[str, Ints]:
    """Return the orders to try, by name; equal spans stay in the order of their begins."""
    length = spans.last - spans.first + 1
    return MappingProxyType(
        {
            "largest first": np.lexsort((spans.first, -length, -spans.sizes)),
            "largest area first": np.lexsort((spans.first, -spans.sizes * length)),
            "earliest first": np.lexsort((-spans.sizes, spans.first)),
        }
    )


def first_fit(spans: Spans, neighbours: Neighbours, order: Ints) -> Ints:
    """Place the spans in `order`, each at the lowest address that is free while it is alive."""
    addresses = np.full(len(spans), -1, dtype=np.int64)
    for index in order.tolist():
        others = neighbours.of(index)
        begins = addresses[others]
        placed = begins >= 0
        begins, others = begins[placed], others[placed]
        by_address = np.argsort(begins, kind="stable")
        ends = np.zeros(len(others) + 1, dtype=np.int64)
        np.maximum.accumulate((begins + spans.sizes[others])[by_address], out=ends[1:])
        begins = np.append(begins[by_address], _NO_LIMIT)
        addresses[index] = ends[np.argmax(begins - ends >= spans.sizes[index])]
    return addresses
