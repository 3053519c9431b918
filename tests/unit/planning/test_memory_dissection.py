"""Plans without any gap: rectangles of time and bytes are put together from their pieces."""

from __future__ import annotations

import random

import networkx as nx
import pytest
from spans import apart, pinwheels

from benchmarks.memory_plan import packed, uniform
from sambac.planning.addresses import peak_of, plan_offsets
from sambac.planning.dissection import plan_without_gaps
from sambac.planning.pressure import Ints, Pressure, Spans


def _fills_a_rectangle(spans: Spans, addresses: Ints | None) -> bool:
    return (
        addresses is not None
        and apart(spans, addresses)
        and peak_of(spans, addresses) == Pressure(spans).peak
    )


@pytest.mark.parametrize("count", [1, 2, 30, 150, 400])
@pytest.mark.parametrize("seed", range(3))
def test_cuts_through_whole_pieces_are_undone(count: int, seed: int) -> None:
    spans = packed(count, seed)
    assert _fills_a_rectangle(spans, plan_without_gaps(spans))


@pytest.mark.parametrize("seed", range(6))
def test_pieces_that_turn_around_another_are_put_together(seed: int) -> None:
    spans = pinwheels(121, seed)
    assert _fills_a_rectangle(spans, plan_without_gaps(spans))


def test_pieces_of_one_lifetime_lie_side_by_side() -> None:
    spans = Spans.of([3, 1, 2, 4], [0, 0, 0, 5], [4, 4, 9, 9])
    assert _fills_a_rectangle(spans, plan_without_gaps(spans))


def test_many_short_pieces_of_few_sizes_give_a_plan_or_none() -> None:
    """Sums are equal by chance throughout; what is drawn all the same is a plan."""
    found = 0
    for seed in range(60):
        spans = _coarse(random.Random(seed), 40)
        addresses = plan_without_gaps(spans)
        assert addresses is None or _fills_a_rectangle(spans, addresses)
        found += addresses is not None
    assert found >= 30


def _coarse(dice: random.Random, count: int) -> Spans:
    """Cut a rectangle of 20 moments and 30 bytes."""
    pieces = [(0, 20, 0, 30)]
    while len(pieces) < count:
        begin, end, low, top = piece = dice.choice(pieces)
        if dice.random() < 0.5 and end - begin > 1:
            middle = dice.randrange(begin + 1, end)
            parts = [(begin, middle, low, top), (middle, end, low, top)]
        elif top - low > 1:
            middle = dice.randrange(low + 1, top)
            parts = [(begin, end, low, middle), (begin, end, middle, top)]
        else:
            continue
        pieces.remove(piece)
        pieces += parts
    dice.shuffle(pieces)
    sizes = [top - low for _, _, low, top in pieces]
    return Spans.of(sizes, [piece[0] for piece in pieces], [piece[1] - 1 for piece in pieces])


def test_where_less_is_alive_at_a_moment_nothing_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nx, "check_planarity", lambda _graph: pytest.fail("drawn"))
    assert plan_without_gaps(uniform(500)) is None
    assert plan_without_gaps(Spans.of([1, 2, 2], [0, 0, 2], [4, 1, 3])) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_planner_takes_a_plan_without_gaps(seed: int) -> None:
    spans = packed(300, seed)
    assert _fills_a_rectangle(spans, plan_offsets(spans))
