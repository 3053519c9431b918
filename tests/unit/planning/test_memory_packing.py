"""Plans without gaps are found where they exist, and none is claimed where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.memory_plan import INSTANCES, packed, read_instance
from pef.program import RegionKind
from sambac.errors import CompileError
from sambac.planning.addresses import peak_of, plan_offsets
from sambac.planning.memory import ALIGNMENT, plan_memory
from sambac.planning.packing import fit_below
from sambac.planning.plans import Buffer
from sambac.planning.pressure import Ints, Pressure, Spans

QUICK = ("G.1048576", "J.1048576", "K.1048576")


def _apart(spans: Spans, addresses: Ints) -> bool:
    """Return whether no two spans that live at once share an address."""
    ends = addresses + spans.sizes
    meet = (spans.first[:, None] <= spans.last) & (spans.first <= spans.last[:, None])
    overlap = (addresses[:, None] < ends) & (addresses < ends[:, None])
    np.fill_diagonal(meet, val=False)
    return bool((addresses >= 0).all()) and not (meet & overlap).any()


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.long) for n in INSTANCES]
)
def test_the_published_instances_fit_their_limits(name: str) -> None:
    spans, limit = read_instance(name)
    addresses = fit_below(spans, limit)
    assert addresses is not None
    assert peak_of(spans, addresses) <= limit
    assert _apart(spans, addresses)


def test_there_are_eleven_published_instances() -> None:
    assert len(INSTANCES) == 11


@pytest.mark.parametrize("seed", range(8))
def test_a_cut_rectangle_is_put_together_again(seed: int) -> None:
    spans = packed(40, seed)
    limit = Pressure(spans).peak
    addresses = fit_below(spans, limit)
    assert addresses is not None
    assert peak_of(spans, addresses) == limit
    assert _apart(spans, addresses)


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
    spans = packed(150)
    peak, bound = peak_of(spans, plan_offsets(spans)), Pressure(spans).peak
    assert peak > bound
    assert peak_of(spans, plan_offsets(spans, peak)) == peak
    assert peak_of(spans, plan_offsets(spans, bound)) == bound


@pytest.mark.parametrize("region", [RegionKind.HBM, RegionKind.DDR])
def test_gaps_alone_neither_spill_nor_refuse(region: RegionKind) -> None:
    spans = packed(150)
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
