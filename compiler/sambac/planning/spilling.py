"""Which buffers spill from a region that is too small for all: the problem, not its solution.

Only moments matter at which the region would be over its capacity, and of neighbouring ones only
those at which most is alive: what fits there fits at the others too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from pef.symbols import RegionKind

from .plans import Buffer
from .pressure import Spans, spans_of
from .region_times import Bools, Floats, Ints, RegionTimes


class SpillRoute(NamedTuple):
    """The region that buffers spill from, and where to; `homes` are the regions of all before."""

    times: RegionTimes
    near: RegionKind
    far: RegionKind
    homes: Ints


@dataclass(frozen=True)
class SpillProblem:
    """Buffers of which some have to spill from the region `near` to `far`.

    `buffers` are their numbers in `times`, `sizes` their bytes; each is alive at the moments from
    `low` on and before `high`. At each moment `excess` bytes are too many if none of them spills.
    `homes` is where all buffers lie then. A solution is a mask over `buffers`: which ones spill.
    """

    times: RegionTimes
    near: RegionKind
    far: RegionKind
    homes: Ints
    buffers: Ints
    sizes: Ints
    low: Ints
    high: Ints
    excess: Ints

    def __len__(self) -> int:
        return len(self.buffers)

    def homes_of(self, spilled: Bools) -> Ints:
        """Return where all buffers lie when these have spilled."""
        homes = self.homes.copy()
        homes[self.buffers[spilled]] = self.far
        return homes

    def seconds(self, spilled: Bools) -> float:
        """Return what a run takes when these have spilled."""
        return self.times.seconds(self.homes_of(spilled))

    def changes(self, spilled: Bools) -> Floats:
        """Return by how many seconds a run changes if each one alone spills, or comes back."""
        return self.times.changes(self.homes_of(spilled), self.near, self.far)[self.buffers]

    def over(self, spilled: Bools) -> Ints:
        """Return how many bytes are too many at each moment when these have spilled."""
        return self.excess - self.alive(np.where(spilled, self.sizes, 0))

    def alive(self, amounts: Ints) -> Ints:
        """Return the sum of an amount for each buffer over those that are alive, by moment."""
        change = np.zeros(len(self.excess) + 1, dtype=np.int64)
        np.add.at(change, self.low, amounts)
        np.subtract.at(change, self.high, amounts)
        return np.cumsum(change[:-1])

    def most_over(self, over: Ints) -> Ints:
        """Return the largest of `over` while each buffer is alive."""
        length = 1
        tables = [over]
        while 2 * length <= len(over):
            tables.append(np.maximum(tables[-1][:-length], tables[-1][length:]))
            length *= 2
        found = np.zeros(len(self), dtype=np.int64)
        for level, table in enumerate(tables):
            here = self._levels == level
            ends = self.high[here] - (1 << level)
            found[here] = np.maximum(table[self.low[here]], table[ends])
        return found

    @cached_property
    def _levels(self) -> Ints:
        """The exponents of the largest powers of two that are no longer than each lifetime."""
        return np.array([int(n).bit_length() - 1 for n in self.high - self.low], dtype=np.int64)


def spill_problem(
    buffers: Sequence[Buffer],
    sizes: Sequence[int],
    movable: Sequence[int],
    budget: int,
    route: SpillRoute,
) -> tuple[SpillProblem, list[int]]:
    """Return the problem which of `buffers`, all in one region, spill so that the others fit.

    `budget` is how many bytes the region has, `movable` are the numbers of those that may spill.
    Second come the numbers of those that the problem is about: alive at a moment that matters.
    """
    moments = _Moments.of(buffers, sizes, budget)
    asked = moments.touched_by(movable)
    numbers = [route.times.number[buffers[index].name] for index in asked]
    problem = SpillProblem(
        times=route.times,
        near=route.near,
        far=route.far,
        homes=route.homes,
        buffers=np.array(numbers, dtype=np.int64),
        sizes=moments.spans.sizes[asked],
        low=moments.low[asked],
        high=moments.high[asked],
        excess=moments.excess,
    )
    return problem, asked


def under_pressure(
    buffers: Sequence[Buffer], sizes: Sequence[int], movable: Sequence[int], budget: int
) -> list[int]:
    """Return which of `movable` are alive at a moment at which more bytes than `budget` are."""
    return _Moments.of(buffers, sizes, budget).touched_by(movable)


class _Moments(NamedTuple):
    """The moments that matter: which of them each span is alive at, and how much too much is."""

    spans: Spans
    low: Ints
    high: Ints
    excess: Ints

    @classmethod
    def of(cls, buffers: Sequence[Buffer], sizes: Sequence[int], budget: int) -> _Moments:
        spans = spans_of(buffers, sizes)
        moments, excess = _crowded(spans, budget)
        low = np.searchsorted(moments, spans.first)
        return cls(spans, low, np.searchsorted(moments, spans.last, side="right"), excess)

    def touched_by(self, movable: Sequence[int]) -> list[int]:
        return [index for index in movable if self.low[index] < self.high[index]]


def _crowded(spans: Spans, budget: int) -> tuple[Ints, Ints]:
    """Return the moments that matter, and how many bytes are over the budget there.

    Those are begins with an end before the next begin, at which more is alive than the budget.
    """
    if not len(spans):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    begins, ends = np.unique(spans.first), np.sort(spans.last)
    next_begin = np.append(begins[1:], np.iinfo(np.int64).max)
    moments = begins[ends[np.searchsorted(ends, begins)] < next_begin]
    by_begin = np.argsort(spans.first, kind="stable")
    begun = np.append(0, np.cumsum(spans.sizes[by_begin]))
    gone = np.append(0, np.cumsum(spans.sizes[np.argsort(spans.last, kind="stable")]))
    live = begun[np.searchsorted(spans.first[by_begin], moments, side="right")]
    over = live - gone[np.searchsorted(ends, moments)] - budget
    return moments[over > 0], over[over > 0]
