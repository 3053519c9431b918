"""What runs take with buffers in one region or another, and who is asked to leave one."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from runs_in_regions import DDR, HBM, Access, Call, Run, device, random_run

from pef.symbols import PlacementReason, RegionKind
from sambac.planning.check_memory import check_memory
from sambac.planning.memory import plan_memory
from sambac.planning.plans import Buffer, MemoryPlan
from sambac.planning.region_times import NOWHERE, Moved, RegionTimes, traffic_graph
from sambac.planning.resources import Demand
from sambac.planning.spilling import SpillRoute, spill_problem

HOST = RegionKind.HOST


def test_the_graph_says_who_is_moved_where_and_together_with_whom() -> None:
    demands = [
        Demand(compute=3.0, launch=1.0, held={"w": 64}, streams={"a": 8, "b": 16, "open": 5}),
        Demand(),
        Demand(streams={"b": 4}),
    ]
    packs = {"a": "pack", "b": "pack"}
    graph = traffic_graph(demands, lambda value: packs.get(value, value), {"pack": 0, "w": 0})
    assert graph.edges[(0, False), "pack"]["moved"] == Moved(24, 16)
    assert graph.edges[(2, False), "pack"]["moved"] == Moved(4, 4)
    assert graph.edges[(0, False), NOWHERE]["moved"] == Moved(5, 5)
    assert set(graph.adj["w"]) == {(0, True)}
    assert (graph.nodes[0, False]["floor"], graph.nodes[0, True]["floor"]) == (3.0, 0.0)
    times = RegionTimes.of(graph, device())
    homes = times.homes({"pack": DDR, "w": HBM})
    assert times.seconds(homes) == pytest.approx(1.0 + 3.0 + 64 / 1000 + 4 / 100)


@pytest.mark.parametrize("stream", [None, 15.0, 90.0, 300.0])
@pytest.mark.parametrize("seed", range(5))
def test_changes_are_what_moving_one_buffer_changes(seed: int, stream: float | None) -> None:
    run = random_run(9, 4, seed)
    times = run.times(stream)
    dice = random.Random(seed)
    regions = {buffer.name: dice.choice((HBM, DDR)) for buffer in run.buffers}
    homes = times.homes(regions)
    assert times.seconds(homes) == pytest.approx(run.seconds(regions, stream))
    changes = times.changes(homes, HBM, DDR)
    for name, kind in regions.items():
        other = regions | {name: DDR if kind is HBM else HBM}
        change = run.seconds(other, stream) - run.seconds(regions, stream)
        assert changes[times.number[name]] == pytest.approx(change, abs=1e-12)


def test_a_third_region_counts_too() -> None:
    run = random_run(6, 3, 0)
    times = run.times()
    regions = dict(
        zip((b.name for b in run.buffers), (HBM, DDR, HOST, HBM, HOST, DDR), strict=True)
    )
    changes = times.changes(times.homes(regions), HBM, DDR)
    for name in ("b0", "b1"):
        other = regions | {name: DDR if regions[name] is HBM else HBM}
        change = times.seconds(times.homes(other)) - times.seconds(times.homes(regions))
        assert changes[times.number[name]] == pytest.approx(change, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_moments_that_matter_are_enough(seed: int) -> None:
    """An answer fits at them exactly if it fits at every call."""
    run = random_run(7, 9, seed)
    sizes = [-(-buffer.size // 64) * 64 for buffer in run.buffers]
    names = [buffer.name for buffer in run.buffers]
    capacity = run.most_alive(names) // 2
    times = run.times()
    route = SpillRoute(times, HBM, DDR, times.homes({}))
    problem, asked = spill_problem(run.buffers, sizes, range(len(sizes)), capacity, route)
    for bits in product((False, True), repeat=len(asked)):
        spilled = np.array(bits)
        gone = {names[index] for index, leaves in zip(asked, bits, strict=True) if leaves}
        fits = run.most_alive([name for name in names if name not in gone]) <= capacity
        assert bool((problem.over(spilled) <= 0).all()) == fits
        most = problem.most_over(problem.over(spilled)).tolist()
        for index in range(len(asked)):
            span = slice(problem.low[index], problem.high[index])
            assert most[index] == problem.over(spilled)[span].max()


def planned(
    buffers: list[Buffer], capacities: dict[RegionKind, int], calls: list[Call]
) -> MemoryPlan:
    times: Callable[[], RegionTimes] = Run(tuple(calls), tuple(buffers)).times
    plan = plan_memory(buffers, capacities, times)
    assert check_memory(buffers, plan, capacities) == []
    return plan


def test_what_is_hidden_behind_work_leaves_before_what_moves_less() -> None:
    """By the policy `small` would leave, which its call waits for."""
    buffers = [
        Buffer("hidden", 640, 0, 1, True, True, traffic=640),
        Buffer("small", 600, 0, 1, True, True, traffic=600),
    ]
    calls = [
        Call(100.0, (Access("hidden", 640, held=False),)),
        Call(0.0, (Access("small", 600, held=False),)),
    ]
    plan = planned(buffers, {HBM: 640, DDR: 1 << 20}, calls)
    hidden, small = plan.placements["hidden"], plan.placements["small"]
    assert (hidden.region, hidden.spilled, hidden.reason) == (DDR, True, PlacementReason.COST)
    assert (small.region, small.spilled, small.reason) == (HBM, False, PlacementReason.COST)
    assert (hidden.cost, small.cost) == (0.0, pytest.approx(600 / 100 - 600 / 1000))
    assert plan.policy == {"hidden": HBM, "small": DDR}


def test_what_has_no_room_in_ddr_goes_to_the_host() -> None:
    """HOST takes what is cheapest there, and only if both other regions are full."""
    buffers = [Buffer(f"b{i}", 640, 0, 0, True, True, traffic=i) for i in range(3)]
    moves = [Access(f"b{i}", 640 * (3 - i), held=True) for i in range(3)]
    calls = [Call(0.0, tuple(moves))]
    roomy = planned(buffers, {HBM: 640, DDR: 1 << 20, HOST: 1 << 20}, calls)
    assert [place.region for place in roomy.placements.values()] == [HBM, DDR, DDR]
    full = planned(buffers, {HBM: 640, DDR: 640, HOST: 1 << 20}, calls)
    assert [full.placements[f"b{i}"].region for i in range(3)].count(HOST) == 1
    assert full.placements["b0"].region is HBM
    host = next(place for place in full.placements.values() if place.region is HOST)
    assert (host.reason, host.spilled) == (PlacementReason.COST, False)


def test_without_known_speeds_the_policy_decides() -> None:
    buffers = [Buffer("busy", 640, 0, 0, traffic=9), Buffer("idle", 640, 0, 0, traffic=1)]
    calls = (Call(0.0, (Access("idle", 6400, held=True),)),)
    times = Run(calls, tuple(buffers)).times()
    unknown = replace(times, rates={**times.rates, DDR: None})
    plan = plan_memory(buffers, {HBM: 640, DDR: 1 << 20}, lambda: unknown)
    assert {name: place.region for name, place in plan.placements.items()} == {
        "busy": HBM,
        "idle": DDR,
    }
    assert {place.reason for place in plan.placements.values()} == {PlacementReason.POLICY}
    assert plan.policy is None
