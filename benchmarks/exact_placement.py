"""The least time that any choice of regions could give, by a solver that shares nothing with ours.

Whole numbers say who lies in DDR; at each moment what lies in HBM has to fit. A section takes what
it moves in both regions, but no less than it computes. Addresses are left out: gaps between buffers
may make the real optimum larger, never smaller.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array

from pef.symbols import RegionKind
from sambac.arch import Arch
from sambac.planning.liveness import memory_requests
from sambac.planning.memory import ALIGNMENT
from sambac.planning.plans import Buffer, ProgramPlan
from sambac.planning.resources import Demand, scheduled_demands

SECONDS = 10.0


@dataclass(frozen=True)
class Exact:
    """The seconds of a run: of the best answer found (None if none was), and of no answer below."""

    seconds: float | None
    bound: float


def least_seconds(plan: ProgramPlan, arch: Arch) -> Exact:
    """Return the least seconds of a run of a program, wherever what the user did not place lies.

    The device has HBM and DDR of known speeds, and single streams are no limit.
    """
    calls = [sets for graph in plan.graphs for sets in graph.calls]
    buffers = memory_requests(
        plan.values, plan.lifetimes, len(calls), plan.persistent, in_region={}
    )
    stages = (stage for _, stage in plan.stages)
    demands = [*scheduled_demands(stages, arch, plan.persistent.states)]
    return _solve(demands, buffers, plan, arch)


def _solve(
    demands: list[Demand], buffers: tuple[Buffer, ...], plan: ProgramPlan, arch: Arch
) -> Exact:
    """Ask the solver: first who lies in DDR, then what each call takes to stream.

    Seconds are counted in parts of a run, and bytes in grains of addresses: with very small numbers
    the solver takes worse answers for the best.
    """
    near, far = arch.speed(RegionKind.HBM), arch.speed(RegionKind.DDR)
    assert near is not None
    assert far is not None
    index = {buffer.name: number for number, buffer in enumerate(buffers)}
    capacity = arch.capacities[RegionKind.HBM]
    held = [sum(demand.held.values()) / near for demand in demands]
    streams = np.array([sum(demand.streams.values()) / near for demand in demands])
    fixed = sum(demand.fixed for demand in demands) + sum(held)
    unit = fixed + streams.sum() + sum(demand.compute for demand in demands)
    extra = (1 / far - 1 / near) / unit
    cost = np.append(np.zeros(len(buffers)), np.ones(len(demands)))
    entries = [(call, len(buffers) + call, 1.0) for call in range(len(demands))]
    for call, demand in enumerate(demands):
        for value, nbytes in demand.held.items():
            cost[index[plan.persistent.buffer(value)]] += nbytes * extra
        for value, nbytes in demand.streams.items():
            entries.append((call, index[plan.persistent.buffer(value)], -nbytes * extra))
    moments, excess = _moments(buffers, capacity)
    for row, alive in enumerate(moments, start=len(demands)):
        entries += [(row, number, _grains(buffers[number])) for number in alive]
    rows, columns, values = zip(*entries, strict=True)
    table = coo_array((values, (rows, columns)), (len(demands) + len(moments), len(cost)))
    found = milp(
        cost,
        constraints=LinearConstraint(table.tocsr(), np.append(streams / unit, excess), np.inf),
        bounds=Bounds(
            np.append(np.zeros(len(buffers)), [demand.compute / unit for demand in demands]),
            np.append(np.ones(len(buffers)), np.full(len(demands), np.inf)),
        ),
        integrality=np.append(np.ones(len(buffers)), np.zeros(len(demands))),
        options={"time_limit": SECONDS, "mip_rel_gap": 1e-4},
    )
    bound = fixed + unit * (found.mip_dual_bound or 0.0)
    return Exact(None if found.x is None else fixed + unit * found.fun, bound)


def _grains(buffer: Buffer) -> int:
    return -(-buffer.size // ALIGNMENT)


def _moments(buffers: tuple[Buffer, ...], capacity: int) -> tuple[list[list[int]], list[int]]:
    """Return who is alive at each moment at which too much is, and by how many grains."""
    end = max((buffer.last for buffer in buffers), default=0)
    at: dict[int, list[int]] = {}
    for number, buffer in enumerate(buffers):
        first, last = (0, end) if buffer.persistent else (buffer.first, buffer.last)
        for moment in range(first, last + 1):
            at.setdefault(moment, []).append(number)
    room = capacity // ALIGNMENT
    found = [(alive, sum(_grains(buffers[n]) for n in alive) - room) for alive in at.values()]
    return [alive for alive, over in found if over > 0], [over for _, over in found if over > 0]
