"""Sets of spans for which no single order of first fit reaches the lower bound, but a plan does."""

import pytest

from sambac.planning.offsets import first_fit, peak_of, placing_orders, plan_offsets
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
