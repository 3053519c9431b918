"""The memory plan: a region and an address for every buffer, and how full each region gets.

Persistent buffers lie at the bottom of their region, from address 0, and share with nobody.
Above them transient ones share addresses where their lifetimes do not meet. A lifetime includes
both its ends: what a call writes never lies over what it reads.

Every buffer starts at a multiple of `ALIGNMENT` and takes a multiple of it. All numbers of a
region count these rounded sizes, so that `used` and `peak_live` compare like with like.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from pef.program import Region, RegionKind
from pef.text import human_bytes
from sambac.errors import CompileError, InternalError

from .offsets import peak_of, plan_offsets
from .placement import choose_spills, home_region
from .plans import Buffer, MemoryPlan, Placement
from .pressure import Pressure, Spans

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
    home = home_region(capacities)
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
            layouts[kind] = _lay_out(members[kind])
    _check_fit(layouts, capacities)
    return _plan(buffers, layouts, capacities, frozenset(buffer.name for buffer in spilled))


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
        layout = _lay_out([b for i, b in enumerate(buffers) if i not in spilled])
        if layout.used <= capacity or budget <= 0:
            break
        # The live bytes fit but gaps between the buffers do not: leave room for them.
        less = max(2 * less, layout.used - capacity)
        budget -= less
    return layout, [buffers[i] for i in sorted(spilled)]


def _lay_out(buffers: Sequence[Buffer]) -> _Layout:
    """Give every buffer an address in one region."""
    # An empty buffer needs an address but no bytes: it may lie anywhere.
    fixed = [buffer for buffer in buffers if buffer.persistent or not buffer.size]
    moving = [buffer for buffer in buffers if not buffer.persistent and buffer.size]
    *bottom, base = accumulate((_aligned(buffer.size) for buffer in fixed), initial=0)
    spans = Spans.of(
        [_aligned(buffer.size) for buffer in moving],
        [buffer.first for buffer in moving],
        [buffer.last for buffer in moving],
    )
    offsets = plan_offsets(spans)
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
        buffer.name: Placement(kind, address, buffer.size, buffer.name in spilled)
        for kind, layout in layouts.items()
        for buffer, address in zip(layout.buffers, layout.addresses, strict=True)
    }
    regions = tuple(
        Region(kind, capacities[kind], layout.used, layout.persistent, layout.peak_live)
        for kind, layout in sorted(layouts.items())
    )
    return MemoryPlan({buffer.name: placed[buffer.name] for buffer in buffers}, regions)
