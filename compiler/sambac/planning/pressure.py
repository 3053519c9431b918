"""Memory pressure: which buffers are alive together, how much is at a time, and what spills.

What has to leave a region that is full are the buffers with the least traffic, and weights after
everything else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .plans import Buffer

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


def spills_by_policy(
    buffers: Sequence[Buffer], sizes: Sequence[int], candidates: Iterable[int], budget: int
) -> list[int]:
    """Return the candidates to move out so that at most `budget` bytes are alive at once.

    `buffers` share one region, `sizes` are the bytes they take there, `candidates` indices of
    those that may leave. A buffer is chosen only if it is alive while the region is over its
    budget, and no chosen one could stay when all the others leave. All the candidates that help
    are returned where even that is not enough.
    """
    pressure = Pressure(spans_of(buffers, sizes))
    order = sorted(candidates, key=lambda i: (buffers[i].weight, buffers[i].traffic, -sizes[i], i))
    spilled = []
    for index in order:
        if pressure.peak <= budget:
            break
        if pressure.during(index) > budget:
            pressure.remove(index)
            spilled.append(index)
    return [index for index in reversed(spilled) if not _fits_again(pressure, index, budget)]


def spans_of(buffers: Sequence[Buffer], sizes: Sequence[int]) -> Spans:
    """Return sizes and lifetimes; persistent ones are alive from the first moment to the last."""
    begin = min((b.first for b in buffers), default=0)
    end = max((b.last for b in buffers), default=0)
    first = [begin if b.persistent else b.first for b in buffers]
    last = [end if b.persistent else b.last for b in buffers]
    return Spans.of(list(sizes), first, last)


def _fits_again(pressure: Pressure, index: int, budget: int) -> bool:
    """Tell whether a spilled buffer can come back after all; if so it does."""
    pressure.restore(index)
    if pressure.during(index) <= budget:
        return True
    pressure.remove(index)
    return False
