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
from dataclasses import dataclass
from math import ceil

import networkx as nx

from pef import dtypes
from pef.costs import Estimate
from pef.program import RegionKind, SectionType
from pef.text import human_bytes, human_time, plural
from sambac.arch import Arch
from sambac.ops import is_byte_product

from .collectives import collectives_of, link_time
from .liveness import moved_by_calls
from .plans import CostReport, LiveSets, PlannedSection, PlannedStage, ProgramPlan, SectionCost
from .resources import limits_of, op_pcus, use_of, value_use
from .view import DataflowView, ValueRole

# What reads no more of its first input than it gives.
_PICKING = frozenset({"Gather", "GatherElements", "GatherND"})


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
        self._collectives = collectives_of(view, states) if arch.chips > 1 else {}

    def section(self, ops: Sequence[str], section: PlannedSection, sets: LiveSets) -> SectionCost:
        """Estimate `section`, which computes `ops` with these live sets."""
        read, written, weights = (
            sum(self._size(name) for name in names)
            for names in (sets.live_in, sets.live_out, sets.weights)
        )
        if section.type is SectionType.REDUCE:
            return SectionCost(Estimate(bytes_in=read), {})
        held, streams = (sum(move.seconds for move in found) for found in self.moves(section, sets))
        shares = self._shares(ops, streams)
        compute = max((self._compute_time(op, n) for op, n in shares.items()), default=0.0)
        launch = self._arch.launch.value
        fill = max(self._depth(ops) - 1, 0) * self._arch.fill.value
        link = self._link_time(ops)
        terms = {
            "compute": compute,
            "memory": held + streams,
            "launch": launch,
            "fill": fill,
            "link": link,
        }
        use = use_of(self._view, ops, self._limits, self._values)
        estimate = Estimate(
            latency=launch + fill + held + max(compute, streams) + link,
            flops=sum(self._view.ops[op].flops for op in ops),
            pcus=sum(shares.values()),
            pmus=use.pmus,
            sram=use.sram,
            bytes_in=read,
            bytes_out=written,
            bytes_weights=weights,
            limited_by=max(terms, key=terms.__getitem__),
            launch=launch,
            fill=fill,
            held=held,
            compute=compute,
            streams=streams,
            link=link,
        )
        return SectionCost(estimate, shares)

    def _size(self, value: str) -> int:
        return self._view.values[value].modelled_nbytes

    def _link_time(self, ops: Sequence[str]) -> float:
        """Return the seconds of collectives between chips."""
        told = [self._collectives[op] for op in ops if op in self._collectives]
        return link_time(self._arch, told) if told else 0.0

    def _streams(self, section: PlannedSection) -> float:
        """Return the streams that move one tensor to or from a section."""
        several = self._arch.fused_streams
        return several.value if several is not None and len(section.groups) > 1 else 1.0

    def moves(self, section: PlannedSection, sets: LiveSets) -> tuple[list[Move], list[Move]]:
        """Return how what is held as a whole is moved, and how what streams is."""
        each = self._streams(section)
        crossing = (*sets.live_in, *sets.weights, *sets.live_out)
        picked = self._picked(sets)
        sizes = {name: picked.get(name, self._size(name)) for name in crossing}
        held = [name for name in crossing if name in self._view.held and name not in picked]
        streams = [name for name in crossing if name not in self._view.held or name in picked]
        return self._moved(held, sizes, each), self._moved(streams, sizes, each)

    def _picked(self, sets: LiveSets) -> dict[str, int]:
        """Return the bytes that a section reads of each value of which it picks rows alone."""
        picked: dict[str, int] = {}
        whole: set[str] = set()
        for op in (self._view.ops[name] for name in sets.ops):
            picks = op.domain == "" and op.op_type in _PICKING
            for at, value in enumerate(op.inputs):
                if picks and at == 0:
                    taken = sum(self._size(name) for name in op.outputs)
                    picked[value] = picked.get(value, 0) + taken
                else:
                    whole.add(value)
        return {
            name: min(nbytes, self._size(name))
            for name, nbytes in picked.items()
            if name not in whole
        }

    def _moved(self, names: Sequence[str], sizes: Mapping[str, int], each: float) -> list[Move]:
        """Return how values are moved at once, each by so many streams as `each` says."""
        found: dict[RegionKind, list[str]] = {}
        for name in names:
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

    def _compute_time(self, op: str, pcus: int) -> float:
        return self._view.ops[op].flops / (pcus * self._arch.flops_per_pcu)

    def _shares(self, ops: Sequence[str], memory: float) -> dict[str, int]:
        """Divide the compute units among the operators that compute, by their work.

        Each gets at least what it needs to run at all, and none more than it takes to be as fast
        as memory: a faster stage would only wait.
        """
        computing = {op: self._view.ops[op].flops for op in ops if op_pcus(self._view.ops[op])}
        work = sum(computing.values())
        spare = max(self._limits.pcus - len(computing), 0)
        shares = {op: 1 + spare * flops // work for op, flops in computing.items()}
        if memory == 0.0:
            return shares
        enough = memory * self._arch.flops_per_pcu
        return {op: min(share, ceil(computing[op] / enough)) for op, share in shares.items()}

    def _depth(self, ops: Sequence[str]) -> int:
        """Return the computing operators on the longest way through a section."""
        first, *others = [op_pcus(self._view.ops[op]) for op in ops]
        if not others:
            return first
        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_weighted_edges_from(("", op, op_pcus(self._view.ops[op])) for op in ops)
        graph.add_weighted_edges_from(
            (maker, op, op_pcus(self._view.ops[op]))
            for op in ops
            for maker in self._view.placed.pred[op]
            if maker in graph
        )
        return int(nx.dag_longest_path_length(graph))


def estimate(plan: ProgramPlan, arch: Arch) -> CostReport:
    """Estimate every section of `plan`, each byte at the speed of the region that it lies in.

    Warnings say which regions have no known speed (which counts as no time), how many sizes are
    known only at run time, and what a run pays for what has spilled.
    """
    stages = [stage for _, stage in plan.stages]
    sections = estimate_sections(stages, arch, _homes(plan), plan.persistent.states)
    warnings = (*_left_out(plan, arch), *_spilled(plan, arch))
    return CostReport(sections, warnings)


def _homes(plan: ProgramPlan) -> dict[str, RegionKind]:
    """Return the region of every value that crosses a border and whose size is known."""
    return {
        name: plan.memory.placements[buffer].region
        for name in plan.values
        if (buffer := plan.persistent.buffer(name)) in plan.memory.placements
    }


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


def _remedy(plan: ProgramPlan) -> str:
    """Return what fixes sizes, where it is inputs that leave them open."""
    for facts in plan.values.values():
        is_tensor = dtypes.parse(facts.type) is not None
        if facts.role is ValueRole.INPUT and facts.nbytes is None and facts.shape and is_tensor:
            sizes = "x".join(str(size) if isinstance(size, int) else "8" for size in facts.shape)
            option = f"--input {facts.name}={sizes}"
            return f"; fix them for costs of a real run, for instance with {option}"
    return ""


def _spilled(plan: ProgramPlan, arch: Arch) -> Iterator[str]:
    """Say what lies in DDR for want of room, and what it costs to move that in one run."""
    spilled = {name: place.size for name, place in plan.memory.placements.items() if place.spilled}
    if not spilled:
        return
    moved = sum(
        (plan.values[name].nbytes or 0) * moved_by_calls(plan.symbols, name)
        for name in plan.lifetimes
        if plan.persistent.buffer(name) in spilled
    )
    ddr, hbm = arch.speed(RegionKind.DDR), arch.speed(RegionKind.HBM)
    cost = ""
    if ddr is not None and hbm is not None:
        cost = f", in {human_time(1e6 * moved / ddr)} instead of {human_time(1e6 * moved / hbm)}"
    yield (
        f"HBM is full: {plural(len(spilled), 'symbol')} of {human_bytes(sum(spilled.values()))} "
        f"spilled to DDR; a run moves {human_bytes(moved)} to and from there{cost}"
    )
