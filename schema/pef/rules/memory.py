"""Memory: sizes fit types, allocations fit regions, and what lives at once lies apart.

Inputs and outputs that share a region are all of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import isfinite

from pef import dtypes
from pef.program import Program
from pef.states import SHARED_REGIONS, has_states, shared_regions
from pef.symbols import PlacementReason, RegionKind, Symbol, SymbolKind

_LARGEST = 1 << 63
_STAYING = frozenset({PlacementReason.ROOM, PlacementReason.USER})


def regions(program: Program) -> Iterator[str]:
    """Regions are listed once, and no more of them is used than there is."""
    seen: set[RegionKind] = set()
    for region in program.regions:
        who = f"region {region.kind.name}"
        if region.kind in seen:
            yield f"{who} is listed twice"
        seen.add(region.kind)
        if not (isfinite(region.bandwidth) and region.bandwidth >= 0):
            yield f"{who} has the bandwidth {region.bandwidth}"
        if region.used > region.capacity:
            yield f"{who} has {region.capacity} bytes, {region.used} are used"
        if max(region.persistent, region.peak_live) > region.used:
            yield (
                f"{who} uses {region.used} bytes, less than its {region.persistent} persistent "
                f"or its {region.peak_live} live ones"
            )


def allocations(program: Program) -> Iterator[str]:
    """Allocations lie in the used part of a listed region."""
    used = {region.kind: region.used for region in program.regions}
    for index, allocation in enumerate(program.allocations):
        who = f"allocation {index}" + (f" '{allocation.name}'" if allocation.name else "")
        end = allocation.address + allocation.size
        if allocation.region not in used:
            yield f"{who} is in {allocation.region.name}, which is no region of this program"
        elif min(allocation.address, allocation.size) < 0 or end > used[allocation.region]:
            yield (
                f"{who} is said to be bytes {allocation.address} to {end} of "
                f"{allocation.region.name}, of which {used[allocation.region]} are used"
            )
        if allocation.spilled and (
            allocation.region is not RegionKind.DDR or RegionKind.HBM not in used
        ):
            yield f"{who} is in {allocation.region.name} and said to have spilled from HBM to DDR"
        if allocation.spilled and allocation.reason in _STAYING:
            yield f"{who} has spilled, but the reason for its place is {allocation.reason.name}"


def symbol_types(program: Program) -> Iterator[str]:
    """A symbol has a known type; its size is that of its shape."""
    for symbol in program.symbols:
        who = f"symbol '{symbol.name}'"
        if symbol.dtype not in dtypes.BY_NUMBER and (symbol.dtype or not symbol.type):
            yield f"{who} has the unknown element type {symbol.dtype}"
            continue
        if (spelled := dtypes.parse(symbol.type)) not in (None, symbol.dtype):
            yield f"{who} is a {symbol.type} of element type {symbol.dtype}, expected {spelled}"
        if any(isinstance(dim, int) and dim < 0 for dim in symbol.shape or ()):
            yield f"{who} has the shape {symbol.shape}"
            continue
        yield from _sizes(who, symbol, dtypes.static_nbytes(symbol.dtype, symbol.shape))


def _sizes(who: str, symbol: Symbol, expected: int | None) -> Iterator[str]:
    """Sizes of a symbol that takes `expected` bytes, None if only a run can tell."""
    if expected is None:
        if symbol.allocation is not None or (symbol.data is not None and not _is_input(symbol)):
            yield f"{who} has an address or data although its size is known only at run time"
        return
    if expected >= _LARGEST:
        yield f"{who} has more bytes than can be addressed"
        return
    if symbol.size != expected and (symbol.size or symbol.allocation is not None):
        yield f"{who} has {symbol.size} bytes, its shape and element type need {expected}"
    if symbol.data is not None and symbol.data.size != expected:
        yield f"{who} has {symbol.data.size} bytes of data, its shape and type need {expected}"


def _is_input(symbol: Symbol) -> bool:
    """Whether the symbol is a tensor that the caller gives: its default brings its own shape."""
    return symbol.kind is SymbolKind.INPUT and dtypes.parse(symbol.type) is not None


def placements(program: Program) -> Iterator[str]:
    """A symbol lies within its allocation."""
    for symbol in program.symbols:
        if symbol.allocation is None:
            continue
        allocation = program.allocations[symbol.allocation]
        end = symbol.offset + symbol.size
        if symbol.offset < 0 or end > allocation.size:
            yield (
                f"symbol '{symbol.name}' is said to be bytes {symbol.offset} to {end} of an "
                f"allocation of {allocation.size}"
            )


def lifetimes(program: Program) -> Iterator[str]:
    """A lifetime is a range of the schedule; weights live throughout and have data.

    Those that are states may come from elsewhere.
    """
    end, absence = len(program.schedule), has_states(program)
    for symbol in program.symbols:
        lifetime = (symbol.first_call, symbol.last_call)
        if not -1 <= symbol.first_call <= symbol.last_call <= end:
            yield f"symbol '{symbol.name}' lives from call {lifetime[0]} to {lifetime[1]} of {end}"
        elif symbol.kind is SymbolKind.WEIGHT:
            if lifetime != (-1, end):
                yield f"weight '{symbol.name}' does not live through the whole schedule"
            if symbol.data is None and not absence:
                yield f"weight '{symbol.name}' has no data"


def overlaps(program: Program) -> Iterator[str]:
    """What lives at the same time lies apart, unless it shares an allocation.

    A sweep over the schedule: an allocation is in use while any of its symbols lives, and those
    in use at a call, in the order of their addresses, need only be compared with their neighbours.
    """
    starts: dict[RegionKind, list[tuple[int, int]]] = {}
    for _, is_start, index in sorted(_events(program)):
        allocation = program.allocations[index]
        active = starts.setdefault(allocation.region, [])
        position = bisect_left(active, (allocation.address, index))
        if not is_start:
            del active[position]
            continue
        end = allocation.address + allocation.size
        for neighbour in active[max(position - 1, 0) : position + 1]:
            other = program.allocations[neighbour[1]]
            if other.address < end and allocation.address < other.address + other.size:
                yield (
                    f"{_tenants(program, index)} and {_tenants(program, neighbour[1])} overlap in "
                    f"{allocation.region.name} while both live"
                )
        active.insert(position, (allocation.address, index))


def _events(program: Program) -> Iterator[tuple[int, bool, int]]:
    """When allocations come into use and fall out of it: (call, whether it starts, index).

    Sorting puts the ends of a call before its starts, so a use ends at the call after its last.
    """
    lives: dict[int, list[tuple[int, int]]] = {}
    for symbol in program.symbols:
        if symbol.allocation is None or not program.allocations[symbol.allocation].size:
            continue
        if symbol.first_call <= symbol.last_call:  # anything else is the fault of `lifetimes`
            span = (symbol.first_call, symbol.last_call + 1)
            lives.setdefault(symbol.allocation, []).append(span)
    for index, spans in lives.items():
        for start, end in _merged(spans):
            yield start, True, index
            yield end, False, index


def _merged(spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The union of half-open ranges, as ranges that do not touch."""
    spans.sort()
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start > end:
            yield start, end
            start, end = next_start, next_end
        end = max(end, next_end)
    yield start, end


def _tenants(program: Program, allocation: int) -> str:
    """The symbols of an allocation, for a message."""
    names = [f"'{symbol.name}'" for symbol in program.symbols if symbol.allocation == allocation]
    return ", ".join(names)


_MEMBERS = frozenset({SymbolKind.INPUT, SymbolKind.OUTPUT})


def shared_members(program: Program) -> Iterator[str]:
    """The members of a region are all of it, of one type, and nothing else lies there.

    They are inputs and outputs, of a program that says that it has regions.
    """
    if SHARED_REGIONS not in program.requires.features:
        marked = [place.name for place in program.allocations if place.shared]
        yield from (
            f"'{name}' is shared in a program that says it has no regions" for name in marked
        )
    persistent = {region.kind: region.persistent for region in program.regions}
    for number, tenants in shared_regions(program).items():
        place = program.allocations[number]
        who = f"the shared region '{place.name}'"
        if place.address + place.size > persistent.get(place.region, 0):
            yield f"{who} does not lie in the persistent part of {place.region.name}"
        symbols = [program.symbols[index] for index in tenants]
        yield from (
            f"'{symbol.name}' is not the whole of {who}"
            for symbol in symbols
            if symbol.offset or symbol.size != place.size
        )
        yield from (
            f"'{symbol.name}' of kind {symbol.kind.name} is no input or output in {who}"
            for symbol in symbols
            if symbol.kind not in _MEMBERS
        )
        if len({symbol.dtype for symbol in symbols}) > 1:
            yield f"the members of {who} have different element types"


RULES = (
    regions,
    allocations,
    symbol_types,
    placements,
    lifetimes,
    overlaps,
    shared_members,
)
