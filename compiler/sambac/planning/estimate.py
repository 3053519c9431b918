"""What sections would cost on a device. Everything here is modelled, nothing measured.

    latency = launch + fill + held + max(compute, streams) + link
    held    = moved(what is on chip as a whole)
    streams = moved(what else crosses the section's border)
    moved   = sum over regions of max(bytes / speed of the region, largest / speed of its streams)

`launch` starts the section's program. `fill` is the time until the last stage of the pipeline has
its first data: the longest chain of computing operators, less one, times the time of a stage.
`compute` is the time of the slowest operator on its share of the chip. Each byte that crosses the
border counts at the speed of the region where its symbol lies, HOST at that of the link; what flows
inside costs SRAM, no time. A symbol is one stream, or a few where several kernels run together, and
these are slower than the region: few symbols do not use all of its channels. What operators keep on
chip as a whole (`DataflowView.held`) is there before anything streams past it, or leaves when all
has: that time is not hidden. Of a table from which rows are picked, only those move. `link` is the
time of collectives, where several chips share the work of each operator (`collectives`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import ceil

from pef import dtypes
from pef.costs import Estimate
from pef.program import SectionType
from pef.symbols import FOR_WANT_OF_ROOM, RegionKind
from pef.text import human_bytes, human_time, plural
from sambac.arch import Arch
from sambac.ops import is_byte_product

from .collectives import collectives_of
from .liveness import moved_by_calls
from .plans import CostReport, LiveSets, PlannedSection, PlannedStage, ProgramPlan, SectionCost
from .resources import Demand, Demands, limits_of, use_of, value_use
from .view import DataflowView, ValueRole


def estimate_sections(
    stages: Sequence[PlannedStage],
    arch: Arch,
    homes: Mapping[str, RegionKind],
    states: Collection[str] = (),
) -> tuple[SectionCost, ...]:
    """Estimate every section of every stage, in order; `homes` has the region of each value.

    `states` are inputs that are weights.

    What has no region has a size known only at run time: it counts as in main memory, with 1 for
    every open dimension. What happens in a REDUCE section is up to the host, so that only its bytes
    are counted.
    """
    return tuple(
        model.section(stage.fusion.ops_of(section.groups), section, sets)
        for stage in stages
        for model in (CostModel(stage.view, arch, homes, states),)
        for section, sets in zip(stage.sections.sections, stage.live_sets, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Move:
    """What a section moves at once to and from one region, and the seconds that this takes.

    `together` is the time of all bytes at the speed of the region, `alone` that of the `largest`
    value at the speed of its streams.
    """

    region: RegionKind
    nbytes: int
    largest: str
    largest_nbytes: int
    together: float
    alone: float

    @property
    def seconds(self) -> float:
        """The time of the slower of the two."""
        return max(self.together, self.alone)


def limits(estimate: Estimate) -> dict[str, float]:
    """Return the parts of a latency in seconds, by what limits a section of which one is largest.

    They add up to it: of compute and what streams meanwhile the longer one alone counts.
    """
    computes = estimate.compute >= estimate.streams
    return {
        "compute": estimate.compute if computes else 0.0,
        "memory": estimate.held + (0.0 if computes else estimate.streams),
        "launch": estimate.launch,
        "fill": estimate.fill,
        "link": estimate.link,
    }


class CostModel:
    """The cost model of one device, applied to one graph."""

    def __init__(
        self,
        view: DataflowView,
        arch: Arch,
        homes: Mapping[str, RegionKind],
        states: Collection[str],
    ) -> None:
        self._view = view
        self._arch = arch
        self._homes = homes
        self._limits = limits_of(arch)
        self._values = value_use(view, self._limits)
        self._demands = Demands(view, arch, states)

    def section(self, ops: Sequence[str], section: PlannedSection, sets: LiveSets) -> SectionCost:
        """Estimate `section`, which computes `ops` with these live sets."""
        read, written, weights = (
            sum(self._view.values[name].modelled_nbytes for name in names)
            for names in (sets.live_in, sets.live_out, sets.weights)
        )
        if section.type is SectionType.REDUCE:
            return SectionCost(Estimate(bytes_in=read), {})
        demand = self._demands.of(ops, section, sets)
        held, streams = (
            sum(move.seconds for move in self._moved(moved, demand.each))
            for moved in (demand.held, demand.streams)
        )
        shares = self._shares(demand, streams)
        compute = max((self._demands.seconds(op, n) for op, n in shares.items()), default=0.0)
        use = use_of(self._view, ops, self._limits, self._values)
        estimate = Estimate(
            latency=demand.launch + demand.fill + held + max(compute, streams) + demand.link,
            flops=sum(self._view.ops[op].flops for op in ops),
            pcus=sum(shares.values()),
            pmus=use.pmus,
            sram=use.sram,
            bytes_in=read,
            bytes_out=written,
            bytes_weights=weights,
            launch=demand.launch,
            fill=demand.fill,
            held=held,
            compute=compute,
            streams=streams,
            link=demand.link,
        )
        parts = limits(estimate)
        largest = max(parts, key=parts.__getitem__)
        return SectionCost(replace(estimate, limited_by=largest), shares)

    def moves(self, section: PlannedSection, sets: LiveSets) -> tuple[list[Move], list[Move]]:
        """Return how what is held as a whole is moved, and how what streams is."""
        moved = self._demands.moved(section, sets)
        return self._moved(moved.held, moved.each), self._moved(moved.streams, moved.each)

    def _moved(self, sizes: Mapping[str, int], each: float) -> list[Move]:
        """Return how values are moved at once, each by so many streams as `each` says."""
        found: dict[RegionKind, list[str]] = {}
        for name in sizes:
            home = self._homes.get(name, self._arch.main_memory)
            found.setdefault(home, []).append(name)
        return [self._move(kind, there, sizes, each) for kind, there in found.items()]

    def _move(
        self, kind: RegionKind, names: Sequence[str], sizes: Mapping[str, int], each: float
    ) -> Move:
        """Return how values are moved to or from one region; a speed not known is no limit."""
        rate, stream = self._arch.speed(kind), self._arch.stream_bandwidth
        nbytes = sum(sizes[name] for name in names)
        largest = max(names, key=sizes.__getitem__)
        return Move(
            region=kind,
            nbytes=nbytes,
            largest=largest,
            largest_nbytes=sizes[largest],
            together=nbytes / rate if rate is not None else 0.0,
            alone=sizes[largest] / (each * stream.value) if stream is not None else 0.0,
        )

    def _shares(self, demand: Demand, memory: float) -> Mapping[str, int]:
        """Return the compute units of each operator, none more than to be as fast as memory.

        A faster stage would only wait.
        """
        if memory == 0.0:
            return demand.shares
        enough = memory * self._arch.flops_per_pcu
        work = self._view.ops
        return {op: min(n, ceil(work[op].flops / enough)) for op, n in demand.shares.items()}


def estimate(plan: ProgramPlan, arch: Arch) -> CostReport:
    """Estimate every section of `plan`, each byte at the speed of the region that it lies in.

    Warnings say which regions have no known speed (which counts as no time), how many sizes are
    known only at run time, and what a run pays for what has spilled.
    """
    sections = _estimated(plan, arch, {})
    policy: tuple[float, ...] = ()
    if plan.memory.policy is not None:
        policy = _seconds(plan, _estimated(plan, arch, plan.memory.policy))
    now = _seconds(plan, sections)
    warnings = (*_left_out(plan, arch), *_spilled(plan, arch, sum(now), sum(policy)))
    return CostReport(sections, warnings, policy)


def _estimated(
    plan: ProgramPlan, arch: Arch, elsewhere: Mapping[str, RegionKind]
) -> tuple[SectionCost, ...]:
    """Estimate every section with some buffers in other regions than the plan's."""
    stages = [stage for _, stage in plan.stages]
    return estimate_sections(stages, arch, homes_of(plan, elsewhere), plan.persistent.states)


def homes_of(
    plan: ProgramPlan, elsewhere: Mapping[str, RegionKind] | None = None
) -> dict[str, RegionKind]:
    """Return the region of each value that has one, with some buffers in others than the plan's."""
    homes = {name: place.region for name, place in plan.memory.placements.items()}
    homes |= elsewhere or {}
    return {
        name: homes[buffer]
        for name in plan.values
        if (buffer := plan.persistent.buffer(name)) in homes
    }


def _seconds(plan: ProgramPlan, sections: Sequence[SectionCost]) -> tuple[float, ...]:
    """Return what each graph takes, with these estimates of all sections."""
    return tuple(sum(call.latency for call in calls) for calls in calls_of(plan, sections))


def calls_of(plan: ProgramPlan, sections: Sequence[SectionCost]) -> Iterator[list[Estimate]]:
    """Yield the estimates of the calls of each graph, from those of all sections."""
    left = iter(sections)
    for graph in plan.graphs:
        found: list[Estimate] = []
        for stage in graph.stages:
            own = [cost.estimate for cost in islice(left, len(stage.sections.sections))]
            found += [own[section] for section in stage.sections.schedule]
        yield found


def _left_out(plan: ProgramPlan, arch: Arch) -> Iterator[str]:
    used = {placement.region for placement in plan.memory.placements.values() if placement.size}
    for kind in sorted(used):
        if arch.speed(kind) is None:
            left_out = "leave out the time to move what lies there"
            if arch.stream_bandwidth is not None:
                left_out = "count the speed of single streams alone for what lies there"
            yield (
                f"{arch.name}: the bandwidth of {kind.name} is not published, so the modelled "
                f"latencies {left_out}"
            )
    told = (collectives_of(s.view, plan.persistent.states) for _, s in plan.stages)
    if arch.chips > 1 and (absent := _unknown_of_links(arch)) and (count := sum(map(len, told))):
        yield (
            f"{arch.name}: {absent} of links between chips is published, so the modelled "
            f"latencies leave that out of {plural(count, 'collective')} of {arch.chips} chips"
        )
    ops = (op for _, stage in plan.stages for op in stage.view.ops.values())
    if any(is_byte_product(op.domain, op.op_type) for op in ops):
        yield (
            f"{arch.name}: no rate of products of bytes is published, so the modelled times count "
            "them at that of BF16"
        )
    unknown = sum(1 for facts in plan.values.values() if facts.nbytes is None)
    if unknown:
        yield (
            f"the size of {plural(unknown, 'value')} is known only at run time; the modelled costs "
            f"take 1 for every open dimension{_remedy(plan)}"
        )


def _unknown_of_links(arch: Arch) -> str:
    """Return what nobody knows of the links between chips; nothing if all is known."""
    known = {"latency": arch.link_latency, "bandwidth": arch.link_bandwidth}
    return " and ".join(f"no {what}" for what, constant in known.items() if constant is None)


def _remedy(plan: ProgramPlan) -> str:
    """Return what fixes sizes, where it is inputs that leave them open."""
    for facts in plan.values.values():
        is_tensor = dtypes.parse(facts.type) is not None
        if facts.role is ValueRole.INPUT and facts.nbytes is None and facts.shape and is_tensor:
            sizes = "x".join(str(size) if isinstance(size, int) else "8" for size in facts.shape)
            option = f"--input {facts.name}={sizes}"
            return f"; fix them for costs of a real run, for instance with {option}"
    return ""


def _spilled(plan: ProgramPlan, arch: Arch, now: float, policy: float) -> Iterator[str]:
    """Say what lies in a farther region for want of room, and what a run takes with it there.

    `now` are the seconds of one run, `policy` those by the policy, 0 where nothing is by cost.
    """
    places = plan.memory.placements.items()
    away = {
        (RegionKind.HBM, RegionKind.DDR): {name for name, place in places if place.spilled},
        (RegionKind.DDR, RegionKind.HOST): {
            name
            for name, place in places
            if place.region is RegionKind.HOST and place.reason in FOR_WANT_OF_ROOM
        },
    }
    for (near, far), gone in away.items():
        if gone:
            size = sum(plan.memory.placements[name].size for name in gone)
            what = f"{near.name} is full: {plural(len(gone), 'symbol')} of {human_bytes(size)}"
            yield f"{what} spilled to {far.name}{_price(plan, gone, now, policy)}"


def _price(plan: ProgramPlan, gone: set[str], now: float, policy: float) -> str:
    if policy:
        times = human_time(1e6 * now), human_time(1e6 * policy)
        return (
            f", chosen by cost; a run of all graphs is modelled to take {times[0]}, and {times[1]} "
            "by the default policy"
        )
    moved = sum(
        (plan.values[name].device_nbytes or 0) * moved_by_calls(plan.symbols, name)
        for name in plan.lifetimes
        if plan.persistent.buffer(name) in gone
    )
    return f"; a run moves {human_bytes(moved)} to and from there"
