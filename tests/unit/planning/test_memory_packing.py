"""Plans without gaps are found where they exist, and none is claimed where there is none."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest
from spans import apart, pinwheels

from benchmarks.memory_plan import INSTANCES, packed, read_instance
from pef.symbols import RegionKind
from sambac.errors import CompileError
from sambac.planning.addresses import peak_of, plan_offsets
from sambac.planning.memory import ALIGNMENT, plan_memory
from sambac.planning.packing import QUICK_WORK, SEARCH_WORK, fit_below
from sambac.planning.plans import Buffer
from sambac.planning.pressure import Pressure, Spans

QUICK = ("G.1048576", "J.1048576", "K.1048576")


def _with_a_gap(count: int) -> Spans:
    """Cut a full rectangle into pieces and leave one out, so that not every moment is full."""
    return packed(count + 1).take(np.arange(count))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in INSTANCES]
)
def test_the_published_instances_fit_their_limits(name: str) -> None:
    spans, limit = read_instance(name)
    addresses = fit_below(spans, limit)
    assert addresses is not None
    assert peak_of(spans, addresses) <= limit
    assert apart(spans, addresses)


def test_there_are_eleven_published_instances() -> None:
    assert len(INSTANCES) == 11


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_rectangle_is_put_together_again(seed: int) -> None:
    spans = packed(40, seed)
    limit = Pressure(spans).peak
    addresses = fit_below(spans, limit)
    assert addresses is not None
    assert peak_of(spans, addresses) == limit
    assert apart(spans, addresses)


@pytest.mark.parametrize("slack", [1.0, 1.02, 1.1])
def test_more_room_is_never_worse(slack: float) -> None:
    """A ceiling without slack prunes most, so that it is tried where there is some, too."""
    spans = pinwheels(121, seed=15)
    limit = int(slack * Pressure(spans).peak)
    addresses = fit_below(spans, limit, QUICK_WORK)
    assert addresses is not None
    assert peak_of(spans, addresses) <= limit
    assert apart(spans, addresses)


def test_what_cannot_fit_is_not_found() -> None:
    # Any order of the middle ones leaves a gap of 1 that the long one of 2 does not fill.
    spans = Spans.of([1, 2, 1, 2, 2], [0, 0, 2, 2, 1], [1, 0, 3, 4, 3])
    assert fit_below(spans, Pressure(spans).peak - 1) is None


def test_the_search_ends_where_there_is_too_much_to_place() -> None:
    spans = packed(2_000)
    assert fit_below(spans, Pressure(spans).peak) is None


def test_no_spans_fit_anywhere() -> None:
    assert fit_below(Spans.of([], [], []), 0) is not None


def test_the_search_is_made_only_where_a_plan_is_too_large() -> None:
    spans = _with_a_gap(120)
    peak, bound = peak_of(spans, plan_offsets(spans)), Pressure(spans).peak
    assert peak > bound
    assert peak_of(spans, plan_offsets(spans, peak)) == peak
    assert peak_of(spans, plan_offsets(spans, bound)) == bound


def test_a_part_that_does_not_fit_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    monkeypatch.setattr(
        "sambac.planning.addresses.fit_below", lambda spans, *_: searched.append(len(spans))
    )
    one = _with_a_gap(120)
    later = int(one.last.max()) + 1
    both = Spans(
        np.append(one.sizes, one.sizes),
        np.append(one.first, one.first + later),
        np.append(one.last, one.last + later),
    )
    addresses = plan_offsets(both, Pressure(both).peak)
    assert searched == [120]
    assert apart(both, addresses)


@pytest.mark.parametrize(
    ("regions", "work"),
    [((RegionKind.DDR,), SEARCH_WORK), ((RegionKind.HBM, RegionKind.DDR), QUICK_WORK)],
)
def test_what_may_spill_instead_is_searched_for_seconds(
    regions: tuple[RegionKind, ...], work: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(
        "sambac.planning.addresses.fit_below", lambda _spans, _ceiling, work: asked.append(work)
    )
    spans = _with_a_gap(120)
    rows = zip(spans.sizes.tolist(), spans.first.tolist(), spans.last.tolist(), strict=True)
    buffers = [Buffer(f"b{i}", size, first, last) for i, (size, first, last) in enumerate(rows)]
    capacities = dict.fromkeys(regions[:1], Pressure(spans).peak)
    with suppress(CompileError):
        plan_memory(buffers, capacities | dict.fromkeys(regions[1:], 1 << 40))
    assert asked == [work]


def test_a_search_does_no_more_work_than_it_may() -> None:
    spans = _with_a_gap(120)
    assert fit_below(spans, Pressure(spans).peak, 100_000) is None
    assert fit_below(spans, Pressure(spans).peak) is not None


@pytest.mark.parametrize("region", [RegionKind.HBM, RegionKind.DDR])
def test_gaps_alone_neither_spill_nor_refuse(region: RegionKind) -> None:
    spans = _with_a_gap(120)
    weights = 3 * ALIGNMENT
    rows = zip(spans.sizes.tolist(), spans.first.tolist(), spans.last.tolist(), strict=True)
    buffers = [Buffer(f"b{i}", size, first, last) for i, (size, first, last) in enumerate(rows)]
    buffers.append(Buffer("w", weights, 0, 1_000, persistent=True, weight=True))
    capacities = {region: Pressure(spans).peak + weights}
    if region is RegionKind.HBM:
        capacities[RegionKind.DDR] = 1 << 40
    plan = plan_memory(buffers, capacities)
    assert {p.region for p in plan.placements.values()} == {region}
    assert not any(p.spilled for p in plan.placements.values())
    with pytest.raises(CompileError, match="does not fit"):
        plan_memory(buffers, {region: capacities[region] - ALIGNMENT})
