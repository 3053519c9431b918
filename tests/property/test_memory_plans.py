"""Random requests: every plan passes the checker, and the checker finds every planted overlap."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pef.symbols import RegionKind
from sambac.errors import CompileError
from sambac.planning.addresses import peak_of, plan_offsets
from sambac.planning.check_memory import check_memory
from sambac.planning.memory import ALIGNMENT, plan_memory
from sambac.planning.plans import Buffer, MemoryPlan
from sambac.planning.pressure import Pressure, Spans

HBM, DDR, HOST = RegionKind.HBM, RegionKind.DDR, RegionKind.HOST
ROOM = 1 << 30


@st.composite
def buffer_lists(draw: st.DrawFn, most: int = 24) -> list[Buffer]:
    buffers = []
    for index in range(draw(st.integers(0, most))):
        first = draw(st.integers(0, 12))
        persistent = draw(st.integers(0, 4)) == 0
        buffers.append(
            Buffer(
                name=f"b{index}",
                size=draw(st.integers(0, 700)),
                first=first,
                last=first + draw(st.integers(0, 6)),
                persistent=persistent,
                weight=persistent and draw(st.booleans()),
                region=draw(st.sampled_from([None, None, None, HBM, DDR, HOST])),
                traffic=draw(st.integers(0, 5)),
            )
        )
    return buffers


@st.composite
def span_lists(draw: st.DrawFn, most: int = 6) -> Spans:
    count = draw(st.integers(1, most))
    numbers = st.lists(st.integers(0, 5), min_size=count, max_size=count)
    sizes = [(size + 1) * ALIGNMENT for size in draw(numbers)]
    first = draw(numbers)
    lengths = draw(numbers)
    last = [begin + length for begin, length in zip(first, lengths, strict=True)]
    return Spans.of(sizes, first, last)


@given(buffer_lists())
def test_plans_pass_the_checker(buffers: list[Buffer]) -> None:
    capacities = {HBM: ROOM, DDR: ROOM, HOST: ROOM}
    plan = plan_memory(buffers, capacities)
    assert check_memory(buffers, plan, capacities) == []
    assert all(use.used >= use.peak_live for use in plan.regions)


@given(buffer_lists(), st.integers(0, 6000))
def test_plans_with_little_hbm_pass_or_are_refused_for_what_was_pinned(
    buffers: list[Buffer], hbm: int
) -> None:
    capacities = {HBM: hbm, DDR: ROOM, HOST: ROOM}
    try:
        plan = plan_memory(buffers, capacities)
    except CompileError:
        pinned = [buffer for buffer in buffers if buffer.region is HBM]
        assert sum(-(-b.size // ALIGNMENT) * ALIGNMENT for b in pinned) > hbm
    else:
        assert check_memory(buffers, plan, capacities) == []


@given(buffer_lists())
def test_equal_requests_give_equal_plans(buffers: list[Buffer]) -> None:
    capacities = {HBM: 2048, DDR: ROOM, HOST: ROOM}
    pliant = [replace(b, region=None) for b in buffers]
    assert plan_memory(pliant, capacities) == plan_memory(list(pliant), capacities)


@given(buffer_lists(), st.data())
def test_the_checker_agrees_with_pairwise_comparison(
    buffers: list[Buffer], data: st.DataObject
) -> None:
    """Move one buffer anywhere: the checker reports an overlap exactly where a pair has one."""
    capacities = {HBM: ROOM, DDR: ROOM, HOST: ROOM}
    plan = plan_memory(buffers, capacities)
    if not buffers:
        return
    name = data.draw(st.sampled_from(sorted(plan.placements)))
    address = ALIGNMENT * data.draw(st.integers(0, 40))
    placement = replace(plan.placements[name], address=address)
    faulty = replace(plan, placements={**plan.placements, name: placement})
    reported = any("overlap" in fault for fault in check_memory(buffers, faulty, capacities))
    assert reported == _some_pair_overlaps(buffers, faulty)


def _some_pair_overlaps(buffers: list[Buffer], plan: MemoryPlan) -> bool:
    for a in buffers:
        for b in buffers:
            here, there = plan.placements[a.name], plan.placements[b.name]
            together = a.persistent or b.persistent or (a.first <= b.last and b.first <= a.last)
            apart = (
                here.address + here.size <= there.address
                or there.address + there.size <= here.address
            )
            meet = a.name < b.name and here.region is there.region and together
            if meet and not apart and here.size and there.size:
                return True
    return False


def _lowest_peak(spans: Spans) -> int:
    """Find the best plan by dropping the spans in every order onto what lies there already.

    Some order builds every plan in which nothing can slide down, an optimal one among them.
    """
    count = len(spans)
    sizes, first, last = spans.sizes.tolist(), spans.first.tolist(), spans.last.tolist()
    best = sum(sizes)
    for order in permutations(range(count)):
        tops: dict[int, int] = {}
        for i in order:
            under = [top for j, top in tops.items() if first[i] <= last[j] and first[j] <= last[i]]
            tops[i] = max(under, default=0) + sizes[i]
        best = min(best, max(tops.values()))
    return best


@given(span_lists())
def test_few_spans_are_planned_at_the_lowest_peak(spans: Spans) -> None:
    assert peak_of(spans, plan_offsets(spans)) == _lowest_peak(spans)


@given(span_lists(most=20))
def test_addresses_are_disjoint_aligned_and_not_below_the_bound(spans: Spans) -> None:
    addresses = plan_offsets(spans)
    assert not np.any(addresses % ALIGNMENT)
    assert peak_of(spans, addresses) >= Pressure(spans).peak
    live = [spans.sizes[(spans.first <= t) & (spans.last >= t)].sum() for t in range(11)]
    assert Pressure(spans).peak == max(live)
