"""What operators and values take of the chip, and what sections ask of the device for their time.

An operator that computes takes at least one compute unit (PCU). Most values stream: operators pass
them on in tiles. A value that one section both writes and reads is a stage of its pipeline, with a
double buffer: the writer fills one half while readers drain the other. A double buffer takes twice
the size of the value, but no more than the tiles that a stage of the device holds (`stage_pmus`; a
device without that figure buffers values as a whole). What a cast only narrows is rounded as it is
written, and has no buffer for that. What comes from memory or goes there streams
through one memory unit (PMU). Of some values every part is on chip at once: the matrix that a
product keeps while others stream past it (`DataflowView.held`). They take their size, wherever they
come from, but no more than half of the chip, for what is larger is kept in blocks, one after
another. Copies of cloned operators take nothing: they are constants and a few integers.

The time of a section follows from its demand, wherever its symbols lie: work, and bytes to move.
What is on chip as a whole is there before anything streams past it, or leaves when all has. Of a
table from which rows are picked, only those move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from pef.program import SectionType
from sambac.arch import Arch

from .collectives import collectives_of, link_time
from .plans import LiveSets, PlannedSection, PlannedStage
from .view import DataflowView, OpFacts

STREAM_PMUS = 1
# What reads no more of its first input than it gives.
_PICKING = frozenset({"Gather", "GatherElements", "GatherND"})


@dataclass(frozen=True, slots=True)
class Limits:
    """What the chip has: compute units, memory units, and bytes of one memory unit.

    A stage of a pipeline has at most `stage_pmus` memory units; None if that is not known, and then
    nothing is held as a whole but what fits in the buffers of stages.
    """

    pcus: int
    pmus: int
    pmu_bytes: int
    stage_pmus: int | None = None

    def units_of(self, nbytes: int | None) -> int:
        """Return the memory units for so many bytes; one for a size known only at run time."""
        return max(-(-(nbytes or 0) // self.pmu_bytes), 1)


@dataclass(frozen=True, slots=True)
class Use:
    """What a section takes of the chip; `sram` is the bytes of its buffers."""

    pcus: int
    pmus: int
    sram: int = 0

    def within(self, limits: Limits) -> bool:
        """Return whether the chip has that much."""
        return self.pcus <= limits.pcus and self.pmus <= limits.pmus


@dataclass(frozen=True, slots=True)
class ValueUse:
    """The memory units of each value: `inside` where one section writes and reads it.

    `outside` is what it takes where it comes from memory or goes there.
    """

    inside: Mapping[str, int]
    outside: Mapping[str, int]

    def of(self, written: Iterable[str], read: Iterable[str]) -> int:
        """Return the memory units of a section that writes and reads these values."""
        both = set(written) & set(read)
        either = set(written) ^ set(read)
        return sum(self.inside[v] for v in both) + sum(self.outside[v] for v in either)


def limits_of(arch: Arch) -> Limits:
    """Return the on-chip limits of an architecture."""
    stage = arch.stage_pmus
    return Limits(
        int(arch.pcus.value),
        int(arch.pmus.value),
        int(arch.pmu_bytes.value),
        None if stage is None else int(stage.value),
    )


def op_pcus(op: OpFacts) -> int:
    """Return the fewest compute units that can run `op`."""
    return 1 if op.flops else 0


def buffer_bytes(nbytes: int, limits: Limits) -> int:
    """Return the bytes of the double buffer of a value that streams."""
    if limits.stage_pmus is None:
        return 2 * nbytes
    return min(2 * nbytes, limits.stage_pmus * limits.pmu_bytes)


def held_bytes(nbytes: int, limits: Limits) -> int:
    """Return the bytes of a value of which every part is on chip at once, or a block of it."""
    return min(nbytes, limits.pmus * limits.pmu_bytes // 2)


def value_use(view: DataflowView, limits: Limits) -> ValueUse:
    """Return what each value of `view` takes."""
    held = _held(view, limits)
    inside = {name: _inside(size, name in held, limits) for name, size in view.sizes.items()}
    outside = {
        name: limits.units_of(held_bytes(size, limits)) if name in held else STREAM_PMUS
        for name, size in view.sizes.items()
    }
    return ValueUse({name: limits.units_of(nbytes) for name, nbytes in inside.items()}, outside)


def _held(view: DataflowView, limits: Limits) -> frozenset[str]:
    """Return the values of which every part is on chip at once beside the buffers of stages.

    There are none where the size of a stage is not known: then its buffers hold values as a whole.
    """
    return view.held if limits.stage_pmus is not None else frozenset()


def _inside(nbytes: int, held: bool, limits: Limits) -> int:
    return held_bytes(nbytes, limits) if held else buffer_bytes(nbytes, limits)


def use_of(view: DataflowView, ops: Iterable[str], limits: Limits, values: ValueUse) -> Use:
    """Return what `ops` take together; `values` is what `value_use` says of `view`."""
    members = tuple(ops)
    written = {value for op in members for value in view.ops[op].outputs}
    read = view.buffered(members)
    held = _held(view, limits)
    kept = sum(held_bytes(view.sizes[v], limits) for v in (written | read) & held)
    return Use(
        pcus=sum(op_pcus(view.ops[op]) for op in members),
        pmus=values.of(written, read),
        sram=kept + sum(buffer_bytes(view.sizes[v], limits) for v in (written & read) - held),
    )


@dataclass(frozen=True)
class Traffic:
    """What a section moves: bytes of each value that it holds as a whole, and that streams.

    One value is moved by so many streams as `each` says.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    each: float = 1.0


@dataclass(frozen=True)
class Demand(Traffic):
    """What a section asks for beside. Times are in seconds.

    `launch` and `fill` it waits for, `link` is the time of collectives between chips. `shares` are
    the compute units of each operator that computes, all of them divided by work, with which the
    slowest takes `compute` seconds.
    """

    launch: float = 0.0
    fill: float = 0.0
    link: float = 0.0
    compute: float = 0.0
    shares: Mapping[str, int] = field(default_factory=dict)

    @property
    def fixed(self) -> float:
        """Seconds that pass whatever is computed and moved meanwhile."""
        return self.launch + self.fill + self.link


class Demands:
    """The demands of the sections of one graph on one device."""

    def __init__(self, view: DataflowView, arch: Arch, states: Collection[str] = ()) -> None:
        """`states` are inputs that are weights."""
        self._view = view
        self._arch = arch
        self._pcus = limits_of(arch).pcus
        self._collectives = collectives_of(view, states) if arch.chips > 1 else {}

    def of(self, ops: Sequence[str], section: PlannedSection, sets: LiveSets) -> Demand:
        """Return the demand of a section that computes `ops`, with these live sets.

        What happens in a REDUCE section is up to the host: it asks for nothing.
        """
        if section.type is SectionType.REDUCE:
            return Demand()
        moved = self.moved(section, sets)
        shares = self._shares(ops)
        told = [self._collectives[op] for op in ops if op in self._collectives]
        return Demand(
            held=moved.held,
            streams=moved.streams,
            each=moved.each,
            launch=self._arch.launch.value,
            fill=max(_depth(self._view, ops) - 1, 0) * self._arch.fill.value,
            link=link_time(self._arch, told) if told else 0.0,
            compute=max((self.seconds(op, n) for op, n in shares.items()), default=0.0),
            shares=shares,
        )

    def moved(self, section: PlannedSection, sets: LiveSets) -> Traffic:
        """Return what a section moves."""
        # What is written is written whole, even where the section picks rows of it as well.
        written = set(sets.live_out)
        picked = {n: b for n, b in _picked(self._view, sets).items() if n not in written}
        moved = {
            name: picked.get(name, self._view.values[name].modelled_nbytes)
            for name in (*sets.live_in, *sets.weights, *sets.live_out)
        }
        kept = self._view.held | self._rounded_to_be_held(sets.ops)
        held = {name for name in moved if name in kept and name not in picked}
        several = self._arch.fused_streams
        return Traffic(
            held={name: nbytes for name, nbytes in moved.items() if name in held},
            streams={name: nbytes for name, nbytes in moved.items() if name not in held},
            each=several.value if several is not None and len(section.groups) > 1 else 1.0,
        )

    def _rounded_to_be_held(self, ops: Iterable[str]) -> set[str]:
        """Return what casts narrow as it comes from memory, to be on chip as a whole."""
        loads = (op for op in ops if op in self._view.loads)
        return {
            source
            for cast in loads
            for source in self._view.reads[cast]
            if self._view.ops[cast].outputs[0] in self._view.held
        }

    def seconds(self, op: str, pcus: int) -> float:
        """Return the seconds that so many compute units take for the work of an operator."""
        return self._view.ops[op].flops / (pcus * self._arch.flops_per_pcu)

    def _shares(self, ops: Sequence[str]) -> dict[str, int]:
        """Divide the compute units by work; each operator gets at least what it needs to run."""
        work = {op: self._view.ops[op].flops for op in ops if op_pcus(self._view.ops[op])}
        spare, together = max(self._pcus - len(work), 0), sum(work.values())
        return {op: 1 + spare * flops // together for op, flops in work.items()}


def scheduled_demands(
    stages: Iterable[PlannedStage], arch: Arch, states: Collection[str]
) -> Iterator[Demand]:
    """Yield the demand of every call of some stages, in order; `states` are inputs as weights."""
    for stage in stages:
        demands = Demands(stage.view, arch, states)
        pairs = zip(stage.sections.sections, stage.live_sets, strict=True)
        found = [demands.of(stage.fusion.ops_of(s.groups), s, sets) for s, sets in pairs]
        yield from (found[section] for section in stage.sections.schedule)


def _picked(view: DataflowView, sets: LiveSets) -> dict[str, int]:
    """Return the bytes that a section reads of each value of which it picks rows alone."""
    picked: dict[str, int] = {}
    whole: set[str] = set()
    for op in (view.ops[name] for name in sets.ops):
        picks = op.domain == "" and op.op_type in _PICKING
        for at, value in enumerate(op.inputs):
            if picks and at == 0:
                taken = sum(view.values[name].modelled_nbytes for name in op.outputs)
                picked[value] = picked.get(value, 0) + taken
            else:
                whole.add(value)
    return {
        name: min(nbytes, view.values[name].modelled_nbytes)
        for name, nbytes in picked.items()
        if name not in whole
    }


def _depth(view: DataflowView, ops: Sequence[str]) -> int:
    """Return the computing operators on the longest way through a section."""
    first, *others = [op_pcus(view.ops[op]) for op in ops]
    if not others:
        return first
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_weighted_edges_from(("", op, op_pcus(view.ops[op])) for op in ops)
    graph.add_weighted_edges_from(
        (maker, op, op_pcus(view.ops[op]))
        for op in ops
        for maker in view.placed.pred[op]
        if maker in graph
    )
    return int(nx.dag_longest_path_length(graph))
