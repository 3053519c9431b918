"""How many bytes are alive at each moment of a schedule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

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
