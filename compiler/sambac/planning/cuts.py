"""Cutting a line of fusion groups into sections, at the places where least crosses.

Groups stand on a line in an order in which they can be executed; a section is a stretch of it.
`best_cuts` is a dynamic program over the end of the last section. What a stretch costs is kept
for all its possible beginnings at once, in arrays that are updated as the end moves on: a group
changes only the entries between two touches of a value, and what does not fit the chip bounds how
far back a stretch can begin. The work is the number of groups times the groups on a full chip.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .resources import Limits, ValueUse


@dataclass(frozen=True, slots=True)
class LineStop:
    """A group on the line: the values it writes, and those it reads, its own included.

    Only groups of one `kind` can be in one section.
    """

    kind: Hashable
    pcus: int
    writes: tuple[str, ...]
    reads: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """Groups in order; `nbytes` and `use` of each value, and those that are in memory anyway."""

    stops: tuple[LineStop, ...]
    nbytes: Mapping[str, int]
    use: ValueUse
    returned: frozenset[str]


def best_cuts(line: Line, limits: Limits, section_cost: int) -> tuple[int, list[int]]:
    """Return the least cost and the beginnings of its sections.

    The cost is the bytes that cross between sections plus `section_cost` for each section. A
    stretch of several groups is considered only if the chip holds it and all are of one kind.
    """
    count = len(line.stops)
    stretches = _Stretches(line, limits)
    best = np.zeros(count + 1, dtype=np.int64)
    begin = [0] * (count + 1)
    for end in range(count):
        low = stretches.extend(end)
        costs = best[low : end + 1] + stretches.traffic[low : end + 1]
        choice = int(costs.argmin())
        best[end + 1] = costs[choice] + section_cost
        begin[end + 1] = low + choice
    return int(best[count]), _trace(begin)


def even_cuts(line: Line, count: int) -> list[int]:
    """Return the beginnings of `count` sections of about equal length.

    Each cut lies where least crosses within a quarter of a section's length from its even place.
    """
    total = len(line.stops)
    crossing = crossing_bytes(line)
    slack = total // (4 * count)
    starts = [0]
    for index in range(1, count):
        even = round(index * total / count)
        near = range(even - slack, even + slack + 1)
        starts.append(min(near, key=lambda at: (crossing[at], abs(at - even), at)))
    return starts


def crossing_bytes(line: Line) -> list[int]:
    """Return, for the place in front of each group, the bytes written before and read behind."""
    last = {value: at for at, stop in enumerate(line.stops) for value in stop.reads}
    change = [0] * (len(line.stops) + 1)
    for at, stop in enumerate(line.stops):
        for value in stop.writes:
            if last.get(value, at) > at:
                change[at + 1] += line.nbytes[value]
                change[last[value] + 1] -= line.nbytes[value]
    return [int(total) for total in np.cumsum(change, dtype=np.int64)]


class _Stretches:
    """Traffic and on-chip use of every stretch that ends at the current group, by its beginning.

    Entry `i` of an array belongs to the stretch from group `i` on. A value adds to the traffic
    of a stretch once when it is read but not written there, and once when it is written there and
    still needed behind the end (unless it goes to memory anyway).
    """

    def __init__(self, line: Line, limits: Limits) -> None:
        count = len(line.stops)
        self.traffic = np.zeros(count, dtype=np.int64)
        self._pmus = np.zeros(count, dtype=np.int64)
        self._pcus = np.zeros(count, dtype=np.int64)
        self._line = line
        self._limits = limits
        self._low = 0
        self._maker: dict[str, int] = {}
        self._touched: dict[str, int] = {}  # the last group that wrote or read a value
        self._buffered: set[str] = set()  # read behind its maker, so in a buffer where both are
        self._last_read = {value: at for at, stop in enumerate(line.stops) for value in stop.reads}

    def extend(self, end: int) -> int:
        """Let all stretches end with group `end`; return the first beginning that is possible."""
        stop = self._line.stops[end]
        if end and stop.kind != self._line.stops[end - 1].kind:
            self._low = end
        self._pcus[self._low : end + 1] += stop.pcus
        own = set(stop.writes)
        inner = own.intersection(stop.reads)
        for value in stop.writes:
            self._write(value, end, value in inner)
        for value in stop.reads:
            if value not in own:
                self._read(value, end)
        while self._low < end and self._is_too_much(self._low):
            self._low += 1
        return self._low

    def _is_too_much(self, begin: int) -> bool:
        over = self._pmus[begin] > self._limits.pmus or self._pcus[begin] > self._limits.pcus
        return bool(over)

    def _write(self, value: str, end: int, is_inner: bool) -> None:
        here = slice(self._low, end + 1)  # every stretch that ends here makes it
        use = self._line.use.inside if is_inner else self._line.use.outside
        self._pmus[here] += use[value]
        if self._last_read.get(value, end) > end and value not in self._line.returned:
            self.traffic[here] += self._line.nbytes[value]
        self._maker[value] = self._touched[value] = end
        if is_inner:
            self._buffered.add(value)

    def _read(self, value: str, end: int) -> None:
        size = self._line.nbytes[value]
        maker = self._maker.get(value, -1)
        # Stretches that begin behind the last touch see the value for the first time, and take it
        # in; earlier ones have it already.
        fresh = slice(max(self._touched.get(value, -1) + 1, self._low), end + 1)
        outside = self._line.use.outside[value]
        self._pmus[fresh] += outside
        self._touched[value] = end
        if maker < 0:  # an input or a weight: every cut reads it once, wherever that is
            return
        self.traffic[fresh] += size
        # Stretches that begin at the maker or before it have it inside: from its first reader on in
        # a double buffer, and from its last one on it leaves them no more.
        inside = slice(self._low, max(maker + 1, self._low))
        if value not in self._buffered:
            self._buffered.add(value)
            self._pmus[inside] += self._line.use.inside[value] - outside
        if self._last_read[value] == end and value not in self._line.returned:
            self.traffic[inside] -= size


def _trace(begin: Sequence[int]) -> list[int]:
    """Follow the beginnings of sections from the end of the line to its front."""
    starts = []
    at = len(begin) - 1
    while at > 0:
        at = begin[at]
        starts.append(at)
    return starts[::-1]
