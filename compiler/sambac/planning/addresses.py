"""Addresses of what comes and goes in one region: buffers share them that do not live together.

Buffers that never meet, not even over others, are planned apart: those of an evaluation beside
those of the training step before it. First fit in several orders. Unless one has as its peak the
largest sum of live bytes, below which no plan can go, `dissection` looks for a plan without any
gap, and where there is none, `ejection` improves the best order. Where that plan is too large for
its region, only for the gaps in it, `packing` looks for one that fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import networkx as nx
import numpy as np

from .dissection import plan_without_gaps
from .ejection import lower_peak
from .packing import SEARCH_WORK, fit_below
from .pressure import Ints, Neighbours, Pressure, Spans

_NO_LIMIT = np.iinfo(np.int64).max


def plan_offsets(spans: Spans, ceiling: int | None = None, work: int = SEARCH_WORK) -> Ints:
    """Return an address for every span, with as low a peak as can be found quickly.

    All sizes have to be positive. Addresses are multiples of whatever all sizes are multiples of.
    Where that peak is above `ceiling`, and what lives at once is not, up to `work` is spent on a
    plan below it (see `fit_below`).
    """
    bound = Pressure(spans).peak
    addresses = np.zeros(len(spans), dtype=np.int64)
    for indices in living_together(spans):
        together = spans.take(indices)
        planned = _plan_together(together, bound)
        if ceiling is not None and bound <= ceiling < peak_of(together, planned):
            fitting = fit_below(together, ceiling, work)
            if fitting is None:
                ceiling = None  # whatever is found for other parts
            else:
                planned = fitting
        addresses[indices] = planned
    return addresses


def living_together(spans: Spans) -> list[Ints]:
    """Return the indices of spans, parted where nothing of one part lives while another does.

    Two spans are in one part if they are connected in the graph of who lives with whom. For that,
    each needs but one edge, to what lives longest of those that have begun before it.
    """
    graph: nx.Graph[int] = nx.Graph()
    graph.add_nodes_from(range(len(spans)))
    last = spans.last.tolist()
    longest: int | None = None
    for index in np.argsort(spans.first, kind="stable").tolist():
        if longest is not None and spans.first[index] <= last[longest]:
            graph.add_edge(longest, index)
        if longest is None or last[index] > last[longest]:
            longest = index
    return [np.array(sorted(part), dtype=np.int64) for part in nx.connected_components(graph)]


def _plan_together(spans: Spans, bound: int) -> Ints:
    """Return an address for every span, with a peak of `bound` or as low as can be found."""
    neighbours = Neighbours(spans)
    best = np.zeros(len(spans), dtype=np.int64)
    best_peak = None
    for order in placing_orders(spans).values():
        addresses = first_fit(spans, neighbours, order)
        peak = peak_of(spans, addresses)
        if best_peak is None or peak < best_peak:
            best, best_peak = addresses, peak
        if best_peak <= bound:
            return best
    without_gaps = plan_without_gaps(spans)
    return lower_peak(spans, neighbours, best, bound) if without_gaps is None else without_gaps


def peak_of(spans: Spans, addresses: Ints) -> int:
    """Return the highest end of a span."""
    return int((addresses + spans.sizes).max(initial=0))


def placing_orders(spans: Spans) -> Mapping[str, Ints]:
    """Return the orders to try, by name; equal spans stay in the order of their begins."""
    length = spans.last - spans.first + 1
    return MappingProxyType(
        {
            "largest first": np.lexsort((spans.first, -length, -spans.sizes)),
            "largest area first": np.lexsort((spans.first, -spans.sizes * length)),
            "earliest first": np.lexsort((-spans.sizes, spans.first)),
        }
    )


def first_fit(spans: Spans, neighbours: Neighbours, order: Ints) -> Ints:
    """Place the spans in `order`, each at the lowest address that is free while it is alive."""
    addresses = np.full(len(spans), -1, dtype=np.int64)
    for index in order.tolist():
        others = neighbours.of(index)
        begins = addresses[others]
        placed = begins >= 0
        begins, others = begins[placed], others[placed]
        by_address = np.argsort(begins, kind="stable")
        ends = np.zeros(len(others) + 1, dtype=np.int64)
        np.maximum.accumulate((begins + spans.sizes[others])[by_address], out=ends[1:])
        begins = np.append(begins[by_address], _NO_LIMIT)
        addresses[index] = ends[np.argmax(begins - ends >= spans.sizes[index])]
    return addresses
