"""Buffers: how long symbols live, the memory each asks for, and how much is alive at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from pef.program import RegionKind
from sambac.facts import Pack

from .plans import Buffer
from .view import ValueFacts, ValueRole


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Positions in the schedule, inclusive: -1 is before the first call, its length after the last.

    `accesses` counts the calls that write or read the value, the caller's own included.
    """

    first: int
    last: int
    accesses: int


@dataclass(frozen=True, slots=True)
class GraphCalls:
    """What a caller gives to and takes from a named graph: values, and the calls of the graph."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    first_call: int
    calls: int

    @property
    def end(self) -> int:
        """The position behind the last call."""
        return self.first_call + self.calls


@dataclass(frozen=True)
class PersistentBuffers:
    """What lives in memory beyond the flow of values.

    `states` live from run to run, flat ones over packs of them included, and so does what lies in
    `shared`, regions of memory whose members are all of it. `updates` maps a value to
    the symbol that it overwrites. `kept` are values that live to the end of the graph that makes
    them.
    """

    states: tuple[str, ...] = ()
    updates: Mapping[str, str] = field(default_factory=dict)
    kept: frozenset[str] = frozenset()
    packs: tuple[Pack, ...] = ()
    shared: tuple[Pack, ...] = ()

    @cached_property
    def places(self) -> Mapping[str, tuple[Pack, int]]:
        """The pack or shared region that a symbol is part of, by symbol, and the offset there."""
        return {
            name: (pack, offset)
            for pack in (*self.packs, *self.shared)
            for name, offset in ((pack.name, 0), *pack.members)
        }

    def buffer(self, value: str) -> str:
        """Return the name of the buffer that `value` lies in."""
        symbol = self.symbol(value)
        return self.places[symbol][0].name if symbol in self.places else symbol

    def symbol(self, value: str) -> str:
        """Return the symbol in whose memory `value` is written."""
        while value in self.updates:
            value = self.updates[value]
        return value


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


Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spans:
    """Sizes in bytes and inclusive lifetimes of buffers, as parallel arrays of int64."""

    sizes: Ints
    first: Ints
    last: Ints

    @classmethod
    def of(cls, sizes: list[int], first: list[int], last: list[int]) -> Spans:
        """Make spans from plain lists of the same length."""
        return cls(*(np.array(column, dtype=np.int64) for column in (sizes, first, last)))

    def __len__(self) -> int:
        return len(self.sizes)

    def take(self, indices: Ints) -> Spans:
        """Return the spans with these indices."""
        return Spans(self.sizes[indices], self.first[indices], self.last[indices])


class Pressure:
    """The live bytes of some spans at each moment at which one of them begins.

    The live bytes rise only where a buffer begins, so no other moment can hold the peak.
    `window` of a span is the range of moments it is alive at, as a slice of `live`.
    """

    def __init__(self, spans: Spans) -> None:
        self._sizes = spans.sizes
        moments = np.unique(spans.first)
        self._low = np.searchsorted(moments, spans.first)
        self._high = np.searchsorted(moments, spans.last, side="right")
        change = np.zeros(len(moments) + 1, dtype=np.int64)
        np.add.at(change, self._low, spans.sizes)
        np.subtract.at(change, self._high, spans.sizes)
        self.live: Ints = np.cumsum(change[:-1])

    @property
    def peak(self) -> int:
        """The largest sum of bytes alive at once."""
        return int(self.live.max(initial=0))

    def during(self, index: int) -> int:
        """Return the largest sum of live bytes while the span `index` is alive."""
        return int(self.live[self._low[index] : self._high[index]].max(initial=0))

    def remove(self, index: int) -> None:
        """Take the span `index` out of the sums."""
        self.live[self._low[index] : self._high[index]] -= self._sizes[index]

    def restore(self, index: int) -> None:
        """Count the span `index` again."""
        self.live[self._low[index] : self._high[index]] += self._sizes[index]


class Neighbours:
    """Which spans are alive together with a given one.

    Answers are kept while they fit in memory together, as every search asks again and again.
    """

    _KEPT = 8_000_000

    def __init__(self, spans: Spans) -> None:
        self._spans = spans
        self._order = np.argsort(spans.first, kind="stable")
        self._first = spans.first[self._order]
        self._last = spans.last[self._order]
        self._known: dict[int, Ints] = {}
        self._room = self._KEPT

    def of(self, index: int) -> Ints:
        """Return the indices of the spans that live while `index` does, itself left out."""
        known = self._known.get(index)
        if known is not None:
            return known
        begun = int(np.searchsorted(self._first, self._spans.last[index], side="right"))
        found: Ints = self._order[:begun][self._last[:begun] >= self._spans.first[index]]
        found = found[found != index]
        if len(found) <= self._room:
            self._room -= len(found)
            self._known[index] = found
        return found
