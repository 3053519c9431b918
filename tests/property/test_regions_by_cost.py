"""Regions by cost: never slower than the policy, and as fast as the best there is or nearly so.

What a run takes is added up here anew (`runs_in_regions`), and the best answers are those of all
answers, or of a solver.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from runs_in_regions import DDR, HBM, RATES, Run, random_run
from scipy.optimize import Bounds, LinearConstraint, milp

from pef.symbols import PlacementReason, RegionKind
from sambac.planning.check_memory import check_memory
from sambac.planning.memory import plan_memory
from sambac.planning.pressure import spills_by_policy
from sambac.planning.spill_search import repaired, spills_by_cost, start_prices
from sambac.planning.spilling import SpillProblem, SpillRoute, spill_problem

SHARES = st.sampled_from([0.3, 0.5, 0.7, 0.9])
STREAMS = st.sampled_from([None, 20.0, 60.0, 200.0, 2000.0])
LIMIT = 1.05


def small_runs(most: int = 8) -> st.SearchStrategy[Run]:
    return st.builds(random_run, st.integers(1, most), st.integers(1, 6), st.integers(0, 10**6))


def room_in(run: Run, share: float) -> int:
    need = run.most_alive([buffer.name for buffer in run.buffers])
    return max(int(need * share) // 64 * 64, 64)


def sizes_of(run: Run) -> list[int]:
    return [-(-buffer.size // 64) * 64 for buffer in run.buffers]


def in_short(
    run: Run, capacity: int, stream: float | None = None
) -> tuple[SpillProblem, list[int]]:
    times = run.times(stream)
    route = SpillRoute(times, HBM, DDR, times.homes({}))
    return spill_problem(run.buffers, sizes_of(run), range(len(run.buffers)), capacity, route)


def asked(run: Run, capacity: int) -> list[int]:
    """Return who is alive where more is than there is room for."""
    alive: set[int] = set()
    for at in range(len(run.calls)):
        here = [
            (index, size)
            for index, (buffer, size) in enumerate(zip(run.buffers, sizes_of(run), strict=True))
            if buffer.persistent or buffer.first <= at <= buffer.last
        ]
        if sum(size for _, size in here) > capacity:
            alive.update(index for index, _ in here)
    return sorted(alive)


def chosen(run: Run, capacity: int, stream: float | None = None) -> dict[str, RegionKind]:
    """Return where buffers lie by cost; gaps between addresses do not count."""
    problem, numbers = in_short(run, capacity, stream)
    policy = spills_by_policy(run.buffers, sizes_of(run), range(len(run.buffers)), capacity)
    spilled = spills_by_cost(problem, np.isin(numbers, policy)).tolist()
    gone = {index for index, spills in zip(numbers, spilled, strict=True) if spills}
    return {b.name: DDR if index in gone else HBM for index, b in enumerate(run.buffers)}


@given(small_runs(), SHARES, STREAMS)
def test_few_buffers_are_placed_as_well_as_can_be(
    run: Run, share: float, stream: float | None
) -> None:
    capacity = room_in(run, share)
    homes = chosen(run, capacity, stream)
    assert run.most_alive([name for name, kind in homes.items() if kind is HBM]) <= capacity
    movable = [run.buffers[index].name for index in asked(run, capacity)]
    least = run.least(capacity, movable, stream)
    assert run.seconds(homes, stream) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("share", [0.3, 0.6, 0.9])
@pytest.mark.parametrize(("count", "calls"), [(30, 12), (60, 25), (60, 60)])
@pytest.mark.parametrize("seed", range(2))
def test_many_buffers_are_placed_nearly_as_well_as_a_solver_does(
    seed: int, count: int, calls: int, share: float
) -> None:
    run = random_run(count, calls, seed)
    capacity = room_in(run, share)
    taken = run.seconds(chosen(run, capacity))
    least = _solved(run, capacity)
    assert least * (1 - 1e-6) <= taken <= least * LIMIT


@given(small_runs(30), SHARES, STREAMS)
def test_plans_by_cost_are_sound_and_never_slower_than_by_the_policy(
    run: Run, share: float, stream: float | None
) -> None:
    capacities = {HBM: room_in(run, share), DDR: 1 << 40}
    policy = plan_memory(run.buffers, capacities)
    plan = plan_memory(run.buffers, capacities, lambda: run.times(stream))
    assert check_memory(run.buffers, plan, capacities) == []
    assert plan == plan_memory(run.buffers, capacities, lambda: run.times(stream))
    homes = {name: place.region for name, place in plan.placements.items()}
    by_policy = {name: place.region for name, place in policy.placements.items()}
    seconds = run.seconds(homes, stream)
    assert seconds <= run.seconds(by_policy, stream) * (1 + 1e-9)
    assert homes | (plan.policy or {}) == by_policy
    for name, place in plan.placements.items():
        if place.reason is PlacementReason.COST:
            near, far = (run.seconds({**homes, name: kind}, stream) for kind in (HBM, DDR))
            assert place.cost == pytest.approx(far - near, rel=1e-6, abs=1e-9 * seconds)
        else:
            assert (place.region, place.reason, place.cost) == (HBM, PlacementReason.ROOM, 0.0)


@given(small_runs(6), SHARES)
def test_prices_never_promise_more_than_there_is(run: Run, share: float) -> None:
    """The bound that the prices give is no more than the least time."""
    capacity = room_in(run, share)
    problem, _ = in_short(run, capacity)
    prices = start_prices(problem)
    if prices is None:
        return
    upper = problem.seconds(repaired(problem, np.zeros(len(problem), dtype=bool)))
    least = run.least(capacity, [buffer.name for buffer in run.buffers])
    for _ in range(60):
        goes_on = prices.step(upper)
        assert prices.bound <= least * (1 + 1e-9)
        if not goes_on:
            break


def _solved(run: Run, capacity: int) -> float:
    """Return the least seconds of a run, as a solver for whole numbers finds it."""
    count, calls = len(run.buffers), len(run.calls)
    number = {buffer.name: index for index, buffer in enumerate(run.buffers)}
    more = 1 / RATES[DDR] - 1 / RATES[HBM]
    cost = np.append(np.zeros(count), np.ones(calls))
    rows = np.zeros((2 * calls, count + calls))
    least = np.zeros(2 * calls)
    fixed = 0.0
    for at, call in enumerate(run.calls):
        rows[at, count + at] = 1.0
        for move in call.moves:
            if move.held:
                fixed += move.nbytes / RATES[HBM]
                cost[number[move.buffer]] += move.nbytes * more
            else:
                least[at] += move.nbytes / RATES[HBM]
                rows[at, number[move.buffer]] -= move.nbytes * more
        for buffer in run.buffers:
            if buffer.persistent or buffer.first <= at <= buffer.last:
                rows[calls + at, number[buffer.name]] = -(-buffer.size // 64) * 64
        least[calls + at] = rows[calls + at].sum() - capacity
    found = milp(
        cost,
        constraints=LinearConstraint(rows, least, np.inf),
        bounds=Bounds(
            np.append(np.zeros(count), [call.compute for call in run.calls]),
            np.append(np.ones(count), np.full(calls, np.inf)),
        ),
        integrality=np.append(np.ones(count), np.zeros(calls)),
        options={"mip_rel_gap": 1e-7},
    )
    assert found.success, found.message
    return fixed + float(found.fun)
