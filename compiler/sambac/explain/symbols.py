"""Why a symbol lies in its region, and there at its address."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from pef import dtypes
from pef.graphs import AmbiguousNameError
from pef.program import SectionType
from pef.states import states_of
from pef.symbols import Allocation, Duration, PlacementReason, Region, RegionKind, Symbol
from pef.text import grouped, human_bytes, human_size, plural, shape_text
from sambac.planning.liveness import memory_requests
from sambac.planning.memory import ALIGNMENT
from sambac.planning.plans import Buffer
from sambac.planning.pressure import Pressure, Spans
from sambac.planning.resources import Demands
from sambac.reconstruct.rebuilt import Rebuilt
from sambac.reconstruct.verify import wanted_regions

from .facts import Fact, quoted, seconds

_WHAT = "What it is"
_REGION = "Why it is in this region"
_ADDRESS = "Why it is at this address"
_NAMED = 3


@dataclass(frozen=True)
class _Tenant:
    """An allocation, its symbols, and the calls over which it is taken."""

    allocation: Allocation
    symbols: tuple[Symbol, ...]

    @cached_property
    def first(self) -> int:
        return min(symbol.first_call for symbol in self.symbols)

    @cached_property
    def last(self) -> int:
        return max(symbol.last_call for symbol in self.symbols)

    @cached_property
    def is_persistent(self) -> bool:
        kept = (s.duration is not Duration.TRANSIENT for s in self.symbols)
        return self.allocation.shared or any(kept)

    @property
    def end(self) -> int:
        return self.allocation.address + self.allocation.size

    @property
    def name(self) -> str:
        return self.allocation.name or self.symbols[0].name

    def meets(self, other: _Tenant) -> bool:
        """Tell whether the two are taken at the same time."""
        return self.first <= other.last and other.first <= self.last


class SymbolFacts:
    """Explains symbols of one program."""

    def __init__(self, rebuilt: Rebuilt) -> None:
        self._rebuilt = rebuilt
        self._program = rebuilt.program
        plans = rebuilt.plans
        values = plans.view.values
        try:
            self._wanted = wanted_regions(self._program, plans, plans.lifetimes)
        except AmbiguousNameError:
            self._wanted = {}
        self._requests = {
            buffer.name: buffer
            for buffer in memory_requests(
                values, plans.lifetimes, len(plans.calls), plans.persistent, in_region=self._wanted
            )
        }
        members: dict[int, list[Symbol]] = {}
        for symbol in self._program.symbols:
            if symbol.allocation is not None:
                members.setdefault(symbol.allocation, []).append(symbol)
        self._places = {
            number: _Tenant(self._program.allocations[number], tuple(symbols))
            for number, symbols in members.items()
        }

    def facts(self, index: int) -> Iterator[Fact]:
        """Yield all facts of the symbol with this index."""
        symbol = self._program.symbols[index]
        yield from self._what(index, symbol)
        if symbol.allocation is None:
            yield Fact(
                _REGION, "Its size is known only at run time, so it has no planned memory.", {}
            )
            return
        place = self._places[symbol.allocation]
        yield from self._region(symbol, place)
        yield from self._address(index, symbol, place)

    def _what(self, index: int, symbol: Symbol) -> Iterator[Fact]:
        sections = self._program.sections
        calls = self._program.schedule
        # What writes a pack writes its parts.
        own = {index, *((symbol.pack,) if symbol.pack is not None else ())}
        written = [n for n in dict.fromkeys(calls) if not own.isdisjoint(sections[n].outputs)]
        read = [
            n
            for n in dict.fromkeys(calls)
            if not own.isdisjoint((*sections[n].inputs, *sections[n].weights))
        ]
        yield Fact(
            _WHAT,
            f"A tensor of kind {symbol.kind.name}, {shape_text(symbol.shape)}, "
            f"{_size(symbol)}. Written by {self._named(written) or 'no section'}; read "
            f"by {self._named(read) or 'no section'}. It is in memory because what crosses the "
            "border of a section is.",
            {"bytes": symbol.size, "written_by": len(written), "read_by": len(read)},
        )
        facts = self._rebuilt.plans.view.values[symbol.name]
        whole = facts.device_nbytes or 0
        if facts.declared:
            yield Fact(
                _WHAT,
                f"The model has it as {dtypes.BY_NUMBER[facts.declared].name}, which no kernel of "
                f"the host gives. Estimates count the {human_bytes(whole)} that it is on a device.",
                {"declared": facts.declared, "device_bytes": whole},
            )
        moves = [*self._moves.get(symbol.name, ())]
        if symbol.pack is not None:  # who moves a pack moves its parts
            pack = self._program.symbols[symbol.pack].name
            moves += [symbol.size] * len(self._moves.get(pack, ()))
        kind = self._rebuilt.homes.get(symbol.name)
        speed = None if kind is None else self._rebuilt.arch.speed(kind)
        if moves and speed is not None and kind is not None:
            nbytes = sum(moves)
            rows = " of rows that are picked" if min(moves) < whole else ""
            yield Fact(
                _WHAT,
                f"A run of the schedule moves it {plural(len(moves), 'time')}: "
                f"{human_bytes(nbytes)}{rows}, {seconds(nbytes / speed)} at the speed of "
                f"{kind.name}.",
                {"moves": len(moves), "bytes_moved": nbytes, "seconds": nbytes / speed},
            )

    @cached_property
    def _moves(self) -> Mapping[str, list[int]]:
        """The bytes that each call of a run is estimated to move of each symbol."""
        rebuilt, found = self._rebuilt, dict[str, list[int]]()
        for number in self._program.schedule:
            stage, at = rebuilt.place[number]
            plan = stage.plan
            if self._program.sections[number].type is SectionType.REDUCE:
                continue  # the host moves what is reduced
            demands = Demands(plan.view, rebuilt.arch, rebuilt.plans.persistent.states)
            traffic = demands.moved(plan.sections.sections[at], plan.live_sets[at])
            for value, nbytes in (*traffic.held.items(), *traffic.streams.items()):
                found.setdefault(rebuilt.plans.persistent.symbol(value), []).append(nbytes)
        return found

    def _named(self, numbers: list[int]) -> str:
        shown = ", ".join(quoted(self._program.sections[n].name) for n in numbers[:_NAMED])
        more = len(numbers) - _NAMED
        return f"{shown} and {more} more" if more > 0 else shown

    def _region(self, symbol: Symbol, place: _Tenant) -> Iterator[Fact]:
        kind = place.allocation.region
        main = self._rebuilt.arch.main_memory
        wanted = next((self._wanted[s.name] for s in place.symbols if s.name in self._wanted), None)
        if wanted is not None:
            yield Fact(
                _REGION,
                f"It is in {kind.name} because the options of the compilation want it there.",
                {"region": kind.name, "reason": "option"},
            )
        elif place.allocation.spilled or (_could_leave(place.allocation) and kind is not main):
            yield self._spilled(symbol, place)
        elif kind is not RegionKind.HBM and RegionKind.HBM not in self._rebuilt.arch.regions:
            yield Fact(
                _REGION,
                f"The device has no HBM, so what nobody wants elsewhere is in {kind.name}.",
                {"region": kind.name, "reason": "main"},
            )
        elif kind is main:
            yield self._fits(kind)
        else:
            yield Fact(
                _REGION,
                f"It is in {kind.name}; nothing in the file says why.",
                {"region": kind.name, "reason": "unknown"},
            )
        if place.allocation.reason is PlacementReason.COST:
            yield _by_cost(place, main)

    def _fits(self, kind: RegionKind) -> Fact:
        region = self._region_of(kind)
        return Fact(
            _REGION,
            f"What nobody wants elsewhere is in {kind.name}, as far as there is room: "
            f"{human_bytes(region.used)} of {human_bytes(region.capacity)} are taken.",
            {"region": kind.name, "reason": "main", "used": region.used,
             "capacity": region.capacity},
        )  # fmt: skip

    def _spilled(self, symbol: Symbol, place: _Tenant) -> Fact:
        """Say by how much the main memory is too small, and what moving this costs."""
        main = self._rebuilt.arch.main_memory
        capacity = self._region_of(main).capacity
        needed = self._needed(main)
        kind = place.allocation.region
        return Fact(
            _REGION,
            f"{main.name} is full: with all that would be there {human_bytes(needed)} would be "
            f"alive at once, {human_bytes(max(needed - capacity, 0))} more than its "
            f"{human_bytes(capacity)}. So it is in {kind.name}.",
            {"region": kind.name, "reason": "spilled", "needed": needed, "capacity": capacity,
             "over": needed - capacity, "bytes": symbol.size},
        )  # fmt: skip

    def _needed(self, main: RegionKind) -> int:
        """Return the most bytes alive at once of all that would be in main memory."""
        there = [
            buffer
            for buffer in self._requests.values()
            if buffer.region is None or buffer.region is main
        ]
        return _peak(there, len(self._program.schedule))

    def _region_of(self, kind: RegionKind) -> Region:
        return next(region for region in self._program.regions if region.kind is kind)

    def _address(self, index: int, symbol: Symbol, place: _Tenant) -> Iterator[Fact]:
        address, kind = place.allocation.address, place.allocation.region
        if place.allocation.name and len(place.symbols) > 1:
            flat = index in states_of(self._program).packs or place.allocation.shared
            yield Fact(
                _ADDRESS,
                f"It is {'the whole of' if flat else 'a part of'} {quoted(place.allocation.name)}, "
                f"{plural(len(place.symbols), 'symbol')} in one piece of memory; it begins "
                f"{human_bytes(symbol.offset)} into it.",
                {"offset": symbol.offset},
            )
        there = [p for p in self._places.values() if p.allocation.region is kind and p is not place]
        if place.is_persistent:
            below = sum(p.is_persistent and p.end <= address for p in there)
            where = f"below its address {grouped(address)} are {plural(below, 'other')}"
            yield Fact(
                _ADDRESS,
                f"It keeps its memory through the whole program. Such symbols are at the bottom of "
                f"{kind.name}, side by side: {where if below else 'it is the first'}.",
                {"address": address, "below": below},
            )
            return
        yield self._between(place, there)
        reusing = [p for p in there if not p.meets(place) and _overlap(p, place)]
        if reusing:
            named = ", ".join(quoted(p.name) for p in reusing[:_NAMED])
            more = f" and {len(reusing) - _NAMED} more" if len(reusing) > _NAMED else ""
            yield Fact(
                _ADDRESS,
                f"At other times its bytes hold {named}{more}: their lifetimes do not meet.",
                {"shared_with": len(reusing)},
            )

    def _between(self, place: _Tenant, there: list[_Tenant]) -> Fact:
        """Say what is alive at the same time right below."""
        address = place.allocation.address
        alive = [p for p in there if p.meets(place) and p.allocation.size]
        below = [p for p in alive if p.end <= address]
        calls = f"It is alive from {self._moment(place.first)} to {self._moment(place.last)}"
        beside = f"{plural(len(alive), 'other symbol')} of its region at the same time"
        nearest = max(below, key=lambda p: p.end, default=None)
        numbers = {"address": address, "first_call": place.first, "last_call": place.last,
                   "alive": len(alive)}  # fmt: skip
        text = f"{calls}, {beside}."
        if nearest is None:
            return Fact(_ADDRESS, f"{text} None of them is below its address {grouped(address)}.",
                        numbers | {"gap": address})  # fmt: skip
        gap = address - nearest.end
        rest = "right behind it" if gap < ALIGNMENT else f"{human_bytes(gap)} behind its end"
        return Fact(
            _ADDRESS,
            f"{text} The nearest of them below is {quoted(nearest.name)}; its address "
            f"{grouped(address)} is {rest}.",
            numbers | {"below": nearest.name, "gap": gap},
        )

    def _moment(self, call: int) -> str:
        if call < 0:
            return "the beginning"
        if call >= len(self._program.schedule):
            return "the end"
        name = self._program.sections[self._program.schedule[call]].name
        return f"call {call} ({quoted(name)})"


def _overlap(one: _Tenant, other: _Tenant) -> bool:
    return one.allocation.address < other.end and other.allocation.address < one.end


def _peak(buffers: list[Buffer], calls: int) -> int:
    sizes = [-(-buffer.size // ALIGNMENT) * ALIGNMENT for buffer in buffers]
    last = max(calls - 1, 0)
    first = [0 if b.persistent else b.first for b in buffers]
    return Pressure(
        Spans.of(sizes, first, [last if b.persistent else b.last for b in buffers])
    ).peak


def _could_leave(place: Allocation) -> bool:
    """Tell whether there was no room for all where it would lie by default."""
    return place.reason in (PlacementReason.COST, PlacementReason.POLICY)


def _size(symbol: Symbol) -> str:
    size = human_size(symbol.size, symbol.shape)
    return "of open size" if size == "open" else size


def _by_cost(place: _Tenant, main: RegionKind) -> Fact:
    """Say what a slower region costs, or would cost; what shares its memory goes with it."""
    cost, numbers = seconds(place.allocation.cost), {"seconds": place.allocation.cost}
    whole = "it" if len(place.symbols) == 1 else f"all of {quoted(place.name)}"
    if place.allocation.region is main:
        text = (
            f"There is no room for all. It stays because a run would be modelled to take {cost} "
            f"longer without {whole} there, all else staying where it is."
        )
    else:
        text = (
            "It left because others would cost more in its place: a run is modelled to take "
            f"{cost} longer for {whole}, all else staying where it is."
        )
    return Fact(_REGION, text, numbers)
