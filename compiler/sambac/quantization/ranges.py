"""Ranges of values from samples: what is looked at, and what is left out at the ends.

minmax       all that was seen                        (torch's MinMaxObserver)
average      a mean of the extremes of each batch     (torch's MovingAverageMinMaxObserver)
percentile   all but one in ten thousand at each end
entropy      the range in which codes keep most of what the distribution says
histogram    the range with the least squared error   (torch's HistogramObserver)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sambac.graph.constants import Array

_BINS = 2048
_SIZES = (2048, 1024, 512, 256)
_A_BIN = 64
_LEFT_OUT = 1e-4
_LEAST_BINS = 128
_STEP = 16
_CODES = 256


_NEW = 0.01
"""How much the extremes of a batch count beside the mean of those before, as in torch."""


class Seen(Protocol):
    """A range that holds 0, of arrays that are seen one after another."""

    @property
    def low(self) -> float:
        """The lower end, 0 or less."""

    @property
    def high(self) -> float:
        """The upper end, 0 or more."""

    def see(self, array: Array) -> None:
        """Look at an array; what is not finite is passed over."""


@dataclass
class Extremes:
    """The least and the largest number seen."""

    low: float = 0.0
    high: float = 0.0

    def see(self, array: Array) -> None:
        """Look at an array; what is not finite is passed over."""
        if (found := _extremes(array)) is not None:
            self.low, self.high = min(self.low, found[0]), max(self.high, found[1])


class AverageExtremes:
    """Means of the least and of the largest number of each array, in which the newest count least.

    The first array counts whole: of few the range is about its own.
    """

    def __init__(self) -> None:
        self._mean: tuple[float, float] | None = None

    @property
    def low(self) -> float:
        """The lower end, 0 or less."""
        return min(0.0, self._mean[0]) if self._mean else 0.0

    @property
    def high(self) -> float:
        """The upper end, 0 or more."""
        return max(0.0, self._mean[1]) if self._mean else 0.0

    def see(self, array: Array) -> None:
        """Look at an array; what is not finite is passed over."""
        if (found := _extremes(array)) is not None:
            low, high = self._mean or found
            low, high = low + _NEW * (found[0] - low), high + _NEW * (found[1] - high)
            self._mean = low, high


def _extremes(array: Array) -> tuple[float, float] | None:
    numbers = array if np.isfinite(array).all() else array[np.isfinite(array)]
    return (float(numbers.min()), float(numbers.max())) if numbers.size else None


class Histogram:
    """How many numbers were seen in each part of a range."""

    def __init__(self, seen: Seen) -> None:
        self._largest = max(-seen.low, seen.high) or 1.0
        self._seen = seen
        self._counts = np.zeros(2 * _BINS, np.int64)

    def see(self, array: Array) -> None:
        """Count the numbers of an array but zeros, which have a code of their own."""
        limits = (-self._largest, self._largest)
        self._counts += np.histogram(array[array != 0], 2 * _BINS, limits)[0]

    def percentile(self) -> tuple[float, float]:
        """Return the range without one number in ten thousand at each end."""
        shares = np.cumsum(self._counts) / max(self._counts.sum(), 1)
        first = int(np.searchsorted(shares, _LEFT_OUT, side="right"))
        last = int(np.searchsorted(shares, 1 - _LEFT_OUT, side="left"))
        edges = np.linspace(-self._largest, self._largest, 2 * _BINS + 1)
        return self._within(float(edges[first]), float(edges[min(last, 2 * _BINS - 1) + 1]))

    def entropy(self) -> tuple[float, float]:
        """Return the range whose codes lose the least information (Kullback and Leibler)."""
        return self._best(_divergence)

    def squared(self) -> tuple[float, float]:
        """Return the range with the least sum of squared errors."""
        return self._best(_squared)

    def _best(self, loss: Callable[[Array, int], float]) -> tuple[float, float]:
        magnitudes = self._counts[_BINS:] + self._counts[:_BINS][::-1]
        # Where few numbers were seen, chance would decide between narrow bins.
        bins = next(n for n in _SIZES if n * _A_BIN <= magnitudes.sum() or n == _SIZES[-1])
        counts = magnitudes.reshape(bins, -1).sum(1)
        tried = range(_LEAST_BINS, bins + 1, _STEP)
        # Losses of hosts differ in their last digits: of those as good, the widest.
        losses = [float(f"{loss(counts, number):.6g}") for number in tried]
        best = max(n for n, found in zip(tried, losses, strict=True) if found <= min(losses))
        limit = self._largest * best / bins
        return self._within(-limit, limit)

    def _within(self, low: float, high: float) -> tuple[float, float]:
        return max(low, self._seen.low), min(high, self._seen.high)


def _divergence(counts: Array, bins: int) -> float:
    """Return how much the codes of the first bins say less than the counts."""
    kept = counts[:bins].astype(np.float64)
    exact = kept.copy()
    exact[-1] += counts[bins:].sum()
    codes = np.arange(bins) * (_CODES // 2) // bins
    totals = np.bincount(codes, kept, _CODES // 2)
    filled = np.bincount(codes, kept > 0, _CODES // 2)
    shared = np.where(kept > 0, totals[codes] / np.maximum(filled[codes], 1), 0.0)
    there = exact > 0
    p = exact[there] / max(exact.sum(), 1)
    q = np.maximum(shared[there] / max(shared.sum(), 1), 1e-12)
    return float(np.sum(p * np.log(p / q)))


def _squared(counts: Array, bins: int) -> float:
    """Return the squared error of all numbers, in widths of bins."""
    step = bins / (_CODES // 2)
    over = np.arange(0, len(counts) - bins) + 0.5
    inside = counts[:bins].sum() * step * step / 12
    return float(inside + np.sum(counts[bins:] * over * over))


@dataclass(frozen=True)
class Observing:
    """How a range is found: from what is `seen`, and from a histogram of it if that `choose`s."""

    seen: Callable[[], Seen] = Extremes
    choose: Callable[[Histogram], tuple[float, float]] | None = None


_AVERAGE, _SQUARED = Observing(AverageExtremes), Observing(choose=Histogram.squared)

OBSERVERS: Mapping[str, Observing] = {
    "minmax": Observing(),
    "average": _AVERAGE,
    "percentile": Observing(choose=Histogram.percentile),
    "entropy": Observing(choose=Histogram.entropy),
    "histogram": _SQUARED,
    "MinMaxObserver": Observing(),
    "MovingAverageMinMaxObserver": _AVERAGE,
    "HistogramObserver": _SQUARED,
}
"""How ranges are found, by the names of options."""
