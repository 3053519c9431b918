"""Runs of calls over buffers in two regions, and what they take: written down apart from planners.

A run is a list of calls; each has seconds of computing, and what it moves: for each value its
buffer, its bytes and whether it is held on chip as a whole. Rates are round numbers.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from pef.symbols import RegionKind
from sambac.arch import Arch, load_arch
from sambac.planning.plans import Buffer
from sambac.planning.region_times import RegionTimes, traffic_graph
from sambac.planning.resources import Demand

HBM, DDR = RegionKind.HBM, RegionKind.DDR
RATES = {HBM: 1000.0, DDR: 100.0, RegionKind.HOST: 50.0}


@dataclass(frozen=True)
class Access:
    buffer: str
    nbytes: int
    held: bool


@dataclass(frozen=True)
class Call:
    compute: float
    moves: tuple[Access, ...]


@dataclass(frozen=True)
class Run:
    calls: tuple[Call, ...]
    buffers: tuple[Buffer, ...]

    def seconds(self, homes: Mapping[str, RegionKind], stream: float | None = None) -> float:
        """Add up what each call takes; a value moves no faster than one stream."""
        return sum(self._call(call, homes, stream) for call in self.calls)

    def _call(self, call: Call, homes: Mapping[str, RegionKind], stream: float | None) -> float:
        times = []
        for held in (True, False):
            time = 0.0
            for kind, rate in RATES.items():
                sizes = [a.nbytes for a in call.moves if a.held == held and homes[a.buffer] == kind]
                alone = max(sizes, default=0) / stream if stream else 0.0
                time += max(sum(sizes) / rate, alone)
            times.append(time)
        return times[0] + max(call.compute, times[1])

    def most_alive(self, names: Sequence[str]) -> int:
        """The largest sum of bytes of these buffers alive in one call, in grains of 64."""
        chosen = [buffer for buffer in self.buffers if buffer.name in names]
        return max(
            sum(-(-b.size // 64) * 64 for b in chosen if b.persistent or b.first <= at <= b.last)
            for at in range(len(self.calls))
        )

    def least(self, capacity: int, movable: Sequence[str], stream: float | None = None) -> float:
        """Try all ways to place those that may leave HBM, where all others are."""
        found = []
        everywhere = {buffer.name: HBM for buffer in self.buffers}
        for kinds in product((HBM, DDR), repeat=len(movable)):
            homes = everywhere | dict(zip(movable, kinds, strict=True))
            if self.most_alive([name for name, kind in homes.items() if kind is HBM]) <= capacity:
                found.append(self.seconds(homes, stream))
        return min(found)

    def times(self, stream: float | None = None) -> RegionTimes:
        """What the planner knows of the run."""
        demands = [
            Demand(
                compute=call.compute,
                held=_values(call, held=True),
                streams=_values(call, held=False),
            )
            for call in self.calls
        ]
        names = [buffer.name for buffer in self.buffers]
        graph = traffic_graph(demands, lambda value: value.partition(":")[0], names)
        return RegionTimes.of(graph, device(stream))


def _values(call: Call, *, held: bool) -> dict[str, int]:
    """Bytes by value: several of one buffer have names of their own."""
    return {
        f"{move.buffer}:{number}": move.nbytes
        for number, move in enumerate(call.moves)
        if move.held == held
    }


def device(stream: float | None = None) -> Arch:
    """A device with these rates."""
    arch = load_arch("sn40l")
    rate = arch.tiers[HBM].bandwidth
    assert rate is not None
    tiers = {
        kind: replace(arch.tiers[kind], bandwidth=replace(rate, value=value), efficiency=None)
        for kind, value in RATES.items()
    }
    limit = None if stream is None else replace(rate, value=stream)
    return replace(arch, tiers=tiers, stream_bandwidth=limit)


def random_run(count: int, calls: int, seed: int) -> Run:
    """Weights and activations of very different sizes; calls hide some of their traffic."""
    dice = random.Random(seed)
    buffers: list[Buffer] = []
    moves: list[list[Access]] = [[] for _ in range(calls)]
    for number in range(count):
        name, size = f"b{number}", int(2 ** dice.uniform(6, 13))
        weight = dice.random() < 0.5
        first = 0 if weight else dice.randrange(calls)
        last = calls - 1 if weight else min(calls - 1, first + int(dice.expovariate(0.3)))
        users = {dice.randint(first, last) for _ in range(dice.randint(1, 3))}
        for user in sorted(users | (set() if weight else {first, last})):
            part = size if dice.random() < 0.8 else size // 4
            moves[user].append(Access(name, part, dice.random() < 0.2))
        traffic = sum(a.nbytes for made in moves for a in made if a.buffer == name)
        buffers.append(Buffer(name, size, first, last, weight, weight, traffic=traffic))
    made = []
    for accesses in moves:
        streams = sum(access.nbytes for access in accesses if not access.held)
        made.append(Call(dice.uniform(0, 3) * streams / RATES[HBM], tuple(accesses)))
    return Run(tuple(made), tuple(buffers))
