"""Addresses for buffers with lifetimes: buffers that live together may not overlap."""

from __future__ import annotations

import numpy as np

from .pressure import Ints, Pressure, Spans


def plan_offsets(spans: Spans, goal: int = 0) -> Ints:
    """Return an address for every span, as low a peak as can be found.

    The search ends early at a peak of at most `goal` or the largest sum of live bytes.
    Addresses are sums of sizes, so they are multiples of whatever all sizes are multiples of.
    """
    bound = max(Pressure(spans).peak, goal)
    best = None
    best_peak = 0
    for order in _orders(spans):
        addresses = _first_fit(spans, order)
        peak = int((addresses + spans.sizes).max(initial=0))
        if best is None or peak < best_peak:
            best, best_peak = addresses, peak
        if best_peak <= bound:
            break
    assert best is not None
    return best


def _orders(spans: Spans) -> list[Ints]:
    length = spans.last - spans.first + 1
    return [
        np.lexsort((spans.first, -length, -spans.sizes)),
        np.lexsort((spans.first, -spans.sizes * length)),
        np.lexsort((-spans.sizes, spans.first)),
    ]


def _first_fit(spans: Spans, order: Ints) -> Ints:
    addresses = np.full(len(spans), -1, dtype=np.int64)
    for index in order:
        together = (spans.first <= spans.last[index]) & (spans.last >= spans.first[index])
        placed = np.flatnonzero(together & (addresses >= 0))
        placed = placed[np.argsort(addresses[placed], kind="stable")]
        starts = np.append(addresses[placed], np.iinfo(np.int64).max)
        ends = np.zeros(len(placed) + 1, dtype=np.int64)
        np.maximum.accumulate(addresses[placed] + spans.sizes[placed], out=ends[1:])
        addresses[index] = ends[np.argmax(starts - ends >= spans.sizes[index])]
    return addresses
