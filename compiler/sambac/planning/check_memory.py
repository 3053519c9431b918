"""Checks of memory: that no two buffers alive at once overlap, and that updates in place are safe.

Overlaps are found by sweeping over time with a sorted list of the addresses in use.

An update writes a new value over the memory of an old one. That is safe if every other operator
that reads the old value has run by then: in an earlier section, or in the same one as an ancestor
of the writer, because within a section only the flow of data orders operators. The writer itself
may read the old value only element by element, into a result of the same shape.

The flat value over a pack has no versions of its own: who reads it means what its members hold by
then, so it may be read after an update of one of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

import networkx as nx

from pef.symbols import PlacementReason, Region, RegionKind
from sambac.ops import is_elementwise

from .plans import Buffer, LiveSets, MemoryPlan, PersistentBuffers, Placement
from .view import DataflowView

_GRAIN = 64


def check_memory(
    buffers: Sequence[Buffer], plan: MemoryPlan, capacities: Mapping[RegionKind, int]
) -> list[str]:
    """Return what is wrong with `plan`, one sentence a fault; an empty list if nothing is."""
    wanted = {buffer.name: buffer for buffer in buffers}
    faults = [f"buffer {name} is not placed" for name in wanted if name not in plan.placements]
    faults += [f"{name} is placed but unknown" for name in plan.placements if name not in wanted]
    placed = [(b, plan.placements[b.name]) for b in buffers if b.name in plan.placements]
    for buffer, placement in placed:
        faults += _check_placement(buffer, placement, capacities)
    listed = [use.kind for use in plan.regions]
    if sorted(listed) != sorted(capacities):
        faults.append(f"the plan lists the regions {listed}, the device has {sorted(capacities)}")
    for use in plan.regions:
        here = [(b, p) for b, p in placed if p.region == use.kind]
        faults += _check_numbers(use, here, capacities)
        faults += _check_overlaps(here)
    return faults


def _check_placement(
    buffer: Buffer, placement: Placement, capacities: Mapping[RegionKind, int]
) -> Iterator[str]:
    name, region = buffer.name, placement.region
    if placement.size != buffer.size:
        yield f"{name} has {buffer.size} bytes but is placed with {placement.size}"
    if placement.address % _GRAIN:
        yield f"{name} lies at {placement.address}, no multiple of {_GRAIN}"
    if region not in capacities:
        yield f"{name} lies in {region.name}, which the device does not have"
    elif placement.address < 0 or placement.address + buffer.size > capacities[region]:
        yield f"{name} ends outside {region.name}, at {placement.address + buffer.size}"
    if buffer.region is not None and region != buffer.region:
        yield f"{name} lies in {region.name}, but {buffer.region.name} was asked for"
    left_hbm = region == RegionKind.DDR and RegionKind.HBM in capacities
    if placement.spilled and (buffer.region is not None or not left_hbm):
        yield f"{name} is said to have spilled from HBM, but did not"
    decided = placement.reason in (PlacementReason.COST, PlacementReason.POLICY)
    if buffer.region is None and region == RegionKind.HOST and not decided:
        yield f"{name} lies in HOST, which nobody asked for"
    home = RegionKind.HBM if capacities.get(RegionKind.HBM) else RegionKind.DDR
    stays = placement.reason is PlacementReason.ROOM and region != home
    asked = (placement.reason is PlacementReason.USER) != (buffer.region is not None)
    if placement.reason is not PlacementReason.UNSTATED and (stays or asked):
        yield f"{name} lies in {region.name}, which {placement.reason.name} is no reason for"


def _check_numbers(
    use: Region,
    placed: Iterable[tuple[Buffer, Placement]],
    capacities: Mapping[RegionKind, int],
) -> Iterator[str]:
    """Compare what the plan says of a region with its buffers; sizes count in whole grains."""
    used = persistent = 0
    changes: dict[int, int] = {}
    lowest_transient = None
    for buffer, placement in placed:
        grains = (buffer.size + _GRAIN - 1) // _GRAIN * _GRAIN
        used = max(used, placement.address + grains)
        if buffer.persistent:
            persistent += grains
        else:
            changes[buffer.first] = changes.get(buffer.first, 0) + grains
            changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - grains
            if grains and (lowest_transient is None or placement.address < lowest_transient):
                lowest_transient = placement.address
    live = peak = persistent
    for moment in sorted(changes):
        live += changes[moment]
        peak = max(peak, live)
    said = (use.capacity, use.used, use.persistent, use.peak_live)
    found = (capacities.get(use.kind, 0), used, persistent, peak)
    for name, is_said, is_found in zip(
        ("capacity", "used", "persistent", "peak_live"), said, found, strict=True
    ):
        if is_said != is_found:
            yield f"{use.kind.name}: {name} is said to be {is_said}, but is {is_found}"
    if lowest_transient is not None and lowest_transient < persistent:
        yield f"{use.kind.name}: a buffer that comes and goes lies below {persistent}"


def _check_overlaps(placed: Sequence[tuple[Buffer, Placement]]) -> Iterator[str]:
    """Sweep over the begins and ends of lifetimes, ends of one moment after its begins.

    While no two live buffers overlap, a new one can only overlap its neighbours by address.
    """
    events: list[tuple[float, int, int]] = []
    for index, (buffer, _) in enumerate(placed):
        if buffer.size:
            forever = buffer.persistent
            events.append((float("-inf") if forever else buffer.first, 0, index))
            events.append((float("inf") if forever else buffer.last, 1, index))
    live: list[tuple[int, int, int]] = []
    for _, ends, index in sorted(events):
        buffer, placement = placed[index]
        key = (placement.address, placement.address + buffer.size, index)
        at = bisect_left(live, key)
        if ends:
            del live[at]
            continue
        for other in live[max(at - 1, 0) : at + 1]:
            if other[0] < key[1] and key[0] < other[1]:
                yield f"{buffer.name} and {placed[other[2]][0].name} overlap while both live"
        insort(live, key)


def check_updates(
    view: DataflowView, calls: Sequence[LiveSets], persistent: PersistentBuffers
) -> list[str]:
    """Return the unsafe updates of one graph, a sentence each.

    `calls` are its sections in the order of the schedule. Graphs run apart, so that operators of
    `view` in no section of `calls` are of no concern.
    """
    spanned = {name: pack.name for pack in persistent.packs for name, _ in pack.members}
    times = Counter(persistent.symbol(new) for new in persistent.updates)
    packs = {pack.name for pack in persistent.packs}
    problems: list[str] = []
    call_of = {op: number for number, sets in enumerate(calls) for op in sets.ops}
    for new in persistent.updates:
        writer = view.producer.get(new)
        if writer not in call_of:
            continue
        symbol = persistent.symbol(new)
        if not view.ops[writer].inputs:  # it resets the memory, for later readers to see
            if times[symbol] > 1 and symbol not in packs:  # of which members are written since
                problems += _readers_of_reset(view, new, persistent.updates)
            continue
        family = {symbol, spanned.get(symbol, symbol)}
        family.update(name for name, pack in spanned.items() if pack == symbol)
        for old in _versions(view, persistent, family, new):
            flat = persistent.symbol(old) == spanned.get(symbol)
            problems += _conflicts(view, (old, new, writer), call_of, may_follow=flat)
    return problems


def _readers_of_reset(view: DataflowView, new: str, updates: Container[str]) -> Iterator[str]:
    """Yield who reads a reset that others overwrite, maybe several times, but for these others."""
    for reader in view.consumers.get(new, ()):
        if not any(value in updates for value in view.ops[reader].outputs):
            yield f"'{reader}' reads '{new}', which may have been overwritten since it was made"


def _versions(
    view: DataflowView, persistent: PersistentBuffers, family: set[str], new: str
) -> Iterator[str]:
    """Yield the values that lie in the memory that `new` overwrites, but for later updates."""
    later = {
        value for value, target in persistent.updates.items() if _follows(persistent, value, new)
    }
    for value in view.values:
        if value != new and value not in later and persistent.symbol(value) in family:
            yield value


def _follows(persistent: PersistentBuffers, value: str, earlier: str) -> bool:
    """Tell whether `value` overwrites `earlier`, directly or not."""
    while value in persistent.updates:
        value = persistent.updates[value]
        if value == earlier:
            return True
    return False


def _conflicts(
    view: DataflowView,
    update: tuple[str, str, str],
    call_of: dict[str, int],
    *,
    may_follow: bool,
) -> Iterator[str]:
    """Yield who reads an old value too late; in a later section that is nobody if `may_follow`."""
    old, new, writer = update
    for reader in view.consumers.get(old, ()):
        when = [call_of[reader]] if reader in call_of else []
        at = call_of[writer]
        if reader == writer:
            if not _same_place(view, writer, old, new):
                yield f"'{writer}' overwrites '{old}', which it does not read element by element"
        elif any(call > at for call in when) and not may_follow and not view.ops[reader].cloned:
            yield f"'{reader}' reads '{old}' after '{writer}' has overwritten it"
        elif at in when and not nx.has_path(view.graph, reader, writer):
            yield f"'{reader}' may read '{old}' after '{writer}' has overwritten it"


def _same_place(view: DataflowView, writer: str, old: str, new: str) -> bool:
    op = view.ops[writer]
    return is_elementwise(op.domain, op.op_type) and (
        view.values[old].shape == view.values[new].shape
    )
