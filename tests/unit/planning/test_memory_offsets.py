"""Sets of spans for which no single order of first fit reaches the lower bound, but a plan does."""

import random
from itertools import combinations

import networkx as nx
import pytest

from sambac.planning.addresses import (
    first_fit,
    living_together,
    peak_of,
    placing_orders,
    plan_offsets,
)
from sambac.planning.pressure import Neighbours, Pressure, Spans


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 1, 3), (1, 2, 4), (2, 1, 2), (3, 3, 6), (2, 0, 1), (3, 0, 0)],
        [(2, 2, 2), (2, 1, 3), (1, 3, 5), (3, 0, 0), (2, 0, 2), (1, 0, 3)],
        [(1, 1, 2), (2, 0, 3), (2, 1, 1), (1, 1, 3), (4, 4, 4), (1, 2, 5)],
        [(2, 3, 5), (3, 2, 4), (3, 2, 2), (4, 4, 5), (2, 2, 5), (3, 0, 3)],
    ],
)
def test_ejection_reaches_the_bound_where_first_fit_does_not(
    rows: list[tuple[int, int, int]],
) -> None:
    sizes, first, last = (list(column) for column in zip(*rows, strict=True))
    spans = Spans.of(sizes, first, last)
    bound = Pressure(spans).peak
    neighbours = Neighbours(spans)
    for order in placing_orders(spans).values():
        assert peak_of(spans, first_fit(spans, neighbours, order)) > bound
    assert peak_of(spans, plan_offsets(spans)) == bound


def test_no_spans_need_no_addresses() -> None:
    assert len(plan_offsets(Spans.of([], [], []))) == 0


def test_neighbours_count_both_ends_of_a_lifetime() -> None:
    neighbours = Neighbours(Spans.of([1, 1, 1], [0, 2, 3], [2, 2, 4]))
    assert [neighbours.of(i).tolist() for i in range(3)] == [[1], [0], []]
    assert neighbours.of(0).tolist() == [1]


@pytest.mark.parametrize("seed", range(20))
def test_what_never_meets_is_planned_apart(seed: int) -> None:
    """The parts are the components of the graph of all pairs that live at once."""
    dice = random.Random(seed)
    first = [dice.randrange(60) for _ in range(25)]
    last = [begin + dice.choice((0, 0, 1, 2, 8)) for begin in first]
    spans = Spans.of([64] * 25, first, last)
    pairs = nx.Graph()
    pairs.add_nodes_from(range(25))
    pairs.add_edges_from(
        (a, b) for a, b in combinations(range(25), 2) if first[a] <= last[b] and first[b] <= last[a]
    )
    found = [part.tolist() for part in living_together(spans)]
    assert sorted(found) == sorted(sorted(part) for part in nx.connected_components(pairs))
    assert peak_of(spans, plan_offsets(spans)) == max(
        peak_of(spans.take(part), plan_offsets(spans.take(part))) for part in living_together(spans)
    )
