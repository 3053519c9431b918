"""The memory plan: a region and an address for every buffer, and how full each region gets.

A buffer goes where the user wants it. All others go to HBM, or to DDR on a device without HBM. What
a region has no room for spills to the next slower one, from HBM to DDR, from DDR to HOST. Which
buffers spill, the policy decides (`pressure.spills_by_policy`); where the speeds of both regions
are known, `spill_search` starts from its choice and looks for one with which a run takes less time.
The plan says which of the two it is, where the policy would have placed each buffer, and for each
that spilled, or could have, what that costs or would cost.

Persistent buffers lie at the bottom of their region, from address 0, and share with nobody.
Above them transient ones share addresses where their lifetimes do not meet. A lifetime includes
both its ends: what a call writes never lies over what it reads.

Every buffer starts at a multiple of `ALIGNMENT` and takes a multiple of it. All numbers of a
region count these rounded sizes, so that `used` and `peak_live` compare like with like.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from pef.symbols import PlacementReason, Region, RegionKind
from pef.text import human_bytes
from sambac.errors import CompileError, InternalError

from .addresses import peak_of, plan_offsets
from .packing import QUICK_WORK, SEARCH_WORK
from .plans import Buffer, MemoryPlan, Placement
from .pressure import Pressure, Spans, spills_by_policy
from .region_times import RegionTimes
from .spill_search import spills_by_cost
from .spilling import SpillRoute, spill_problem, under_pressure

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


class _Hop(NamedTuple):
    """From one region to the next slower one."""

    near: RegionKind
    far: RegionKind


@dataclass
class _Spread:
    """Where buffers lie, by region, and the addresses there.

    `asked` has those that spilled or could have, each with the step between regions that asked.
    """

    members: dict[RegionKind, list[Buffer]]
    layouts: dict[RegionKind, _Layout] = field(default_factory=dict)
    asked: dict[str, _Hop] = field(default_factory=dict)

    @property
    def regions(self) -> dict[str, RegionKind]:
        """The region of each buffer."""
        return {buffer.name: kind for kind, found in self.members.items() for buffer in found}


def plan_memory(
    buffers: Sequence[Buffer],
    capacities: Mapping[RegionKind, int],
    times: Callable[[], RegionTimes] | None = None,
) -> MemoryPlan:
    """Place every buffer in a region and at an address.

    `capacities` are the bytes of each region the device has. `times`, which is asked only where
    something has to spill, says what runs take; without it the policy decides. Raises
    `CompileError` when a user asks for a region the device does not have, or when a region is too
    small; the message says by how much and names the largest buffers.
    """
    _check_requests(buffers, capacities)
    policy = spread = _spread(buffers, capacities, None)
    costs: dict[str, float] = {}
    if times is not None and policy.asked:
        known = times()
        spread = min(
            (_spread(buffers, capacities, known), policy), key=lambda it: _seconds(it, known)
        )
        costs = _costs(spread, known)
    _check_fit(spread.layouts, capacities)
    plan = _plan(buffers, spread, capacities, costs)
    return replace(plan, policy=_other_homes(policy, spread)) if costs else plan


def _seconds(spread: _Spread, times: RegionTimes) -> float:
    return times.seconds(times.homes(spread.regions))


def _other_homes(policy: _Spread, spread: _Spread) -> dict[str, RegionKind]:
    """Return the regions by the policy of those that now lie elsewhere."""
    now = spread.regions
    return {name: kind for name, kind in policy.regions.items() if kind is not now[name]}


def _spread(
    buffers: Sequence[Buffer], capacities: Mapping[RegionKind, int], times: RegionTimes | None
) -> _Spread:
    """Return where buffers lie by cost, or by the policy where `times` are not given."""
    home = _home(capacities)
    spread = _Spread({kind: [] for kind in sorted(capacities)})
    for buffer in buffers:
        spread.members[home if buffer.region is None else buffer.region].append(buffer)
    regions = [kind for kind in RegionKind if kind >= home]
    for step in (_Hop(*pair) for pair in pairwise(regions)):
        if step.near in capacities and step.far in capacities:
            _fill(spread, step, capacities[step.near], times)
    for kind, found in spread.members.items():
        if kind not in spread.layouts:
            spread.layouts[kind] = _lay_out(found, capacities[kind])
    return spread


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


def _fill(spread: _Spread, step: _Hop, capacity: int, times: RegionTimes | None) -> None:
    """Lay out what fits in a region; the others go to the next one."""
    buffers = spread.members[step.near]
    sizes = [_aligned(buffer.size) for buffer in buffers]
    movable = [i for i, buffer in enumerate(buffers) if buffer.region is None and sizes[i]]
    route = None if times is None else SpillRoute(times, *step, times.homes(spread.regions))
    # What would go over the link to the host is worth a longer search for addresses.
    work = QUICK_WORK if step.near is RegionKind.HBM else SEARCH_WORK
    budget, less = capacity, 0
    while True:
        gone = set(_spilled(buffers, sizes, movable, budget, route))
        # A search for addresses is made once; with less to place quick plans do.
        limit = capacity if budget == capacity else None
        kept = [b for i, b in enumerate(buffers) if i not in gone]
        layout = _lay_out(kept, limit, work)
        if layout.used <= capacity or budget <= 0:
            break
        # The live bytes fit but gaps between the buffers do not: leave room for them.
        less = max(2 * less, layout.used - capacity)
        budget -= less
    for index in under_pressure(buffers, sizes, movable, budget) if gone else ():
        name = buffers[index].name
        if index in gone or name not in spread.asked:
            spread.asked[name] = step
    spread.layouts[step.near] = layout
    spread.members[step.near] = list(layout.buffers)
    spread.members[step.far] += [buffers[i] for i in sorted(gone)]


def _spilled(
    buffers: Sequence[Buffer],
    sizes: Sequence[int],
    movable: Sequence[int],
    budget: int,
    route: SpillRoute | None,
) -> list[int]:
    """Return the numbers of those that spill: by the policy, or by cost where `route` has times."""
    policy = spills_by_policy(buffers, sizes, movable, budget)
    if route is None or not policy:
        return policy
    problem, asked = spill_problem(buffers, sizes, movable, budget, route)
    spilled = spills_by_cost(problem, np.isin(asked, policy))
    return [index for index, gone in zip(asked, spilled.tolist(), strict=True) if gone]


def _lay_out(buffers: Sequence[Buffer], capacity: int | None, work: int = SEARCH_WORK) -> _Layout:
    """Give every buffer an address in one region, below `capacity` if a search of `work` does."""
    # An empty buffer needs an address but no bytes: it may lie anywhere.
    fixed = [buffer for buffer in buffers if buffer.persistent or not buffer.size]
    moving = [buffer for buffer in buffers if not buffer.persistent and buffer.size]
    *bottom, base = accumulate((_aligned(buffer.size) for buffer in fixed), initial=0)
    spans = Spans.of(
        [_aligned(buffer.size) for buffer in moving],
        [buffer.first for buffer in moving],
        [buffer.last for buffer in moving],
    )
    offsets = plan_offsets(spans, None if capacity is None else capacity - base, work)
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
    spread: _Spread,
    capacities: Mapping[RegionKind, int],
    costs: Mapping[str, float],
) -> MemoryPlan:
    placed: dict[str, Placement] = {}
    for kind, layout in spread.layouts.items():
        for buffer, address in zip(layout.buffers, layout.addresses, strict=True):
            spilled = buffer.name in spread.asked and _has_spilled(kind, spread.asked[buffer.name])
            placed[buffer.name] = Placement(
                kind,
                address,
                buffer.size,
                spilled,
                _reason(buffer, buffer.name in spread.asked, buffer.name in costs),
                costs.get(buffer.name, 0.0),
            )
    regions = tuple(
        Region(kind, capacities[kind], layout.used, layout.persistent, layout.peak_live)
        for kind, layout in sorted(spread.layouts.items())
    )
    return MemoryPlan({buffer.name: placed[buffer.name] for buffer in buffers}, regions)


def _has_spilled(kind: RegionKind, step: _Hop) -> bool:
    return step.near is RegionKind.HBM and kind is step.far


def _reason(buffer: Buffer, asked: bool, by_cost: bool) -> PlacementReason:
    """Return why a buffer lies where it does; `asked` if it could have spilled for want of room."""
    if buffer.region is not None:
        return PlacementReason.USER
    if not asked:
        return PlacementReason.ROOM
    return PlacementReason.COST if by_cost else PlacementReason.POLICY


def _costs(spread: _Spread, times: RegionTimes) -> dict[str, float]:
    """Return what each buffer that was asked takes longer in the slower region of its step.

    The others stay where they are. Steps between regions of unknown speed have no costs.
    """
    homes = times.homes(spread.regions)
    costs: dict[str, float] = {}
    for step in sorted(set(spread.asked.values())):
        if times.rates[step.near] is not None and times.rates[step.far] is not None:
            changes = times.changes(homes, *step).tolist()
            costs |= {
                name: -change if homes[number] == step.far else change
                for name, asked_at in spread.asked.items()
                if asked_at == step
                for number in (times.number[name],)
                for change in (changes[number],)
            }
    return costs
