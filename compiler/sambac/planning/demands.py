"""What the time of a section follows from, wherever its symbols lie: work, and bytes to move.

What operators keep on chip as a whole (`DataflowView.held`) is there before anything streams past
it, or leaves when all has. Of a table from which rows are picked, only those move.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import networkx as nx

from pef.program import SectionType
from sambac.arch import Arch

from .collectives import collectives_of, link_time
from .plans import LiveSets, PlannedSection, PlannedStage
from .resources import limits_of, op_pcus
from .view import DataflowView

# What reads no more of its first input than it gives.
_PICKING = frozenset({"Gather", "GatherElements", "GatherND"})


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
        picked = _picked(self._view, sets)
        moved = {
            name: picked.get(name, self._view.values[name].modelled_nbytes)
            for name in (*sets.live_in, *sets.weights, *sets.live_out)
        }
        held = {name for name in moved if name in self._view.held and name not in picked}
        several = self._arch.fused_streams
        return Traffic(
            held={name: nbytes for name, nbytes in moved.items() if name in held},
            streams={name: nbytes for name, nbytes in moved.items() if name not in held},
            each=several.value if several is not None and len(section.groups) > 1 else 1.0,
        )

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
