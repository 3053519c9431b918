"""What the time of a section follows from, wherever its symbols lie: work, and bytes to move.

What operators keep on chip as a whole (`DataflowView.held`) is there before anything streams past
it, or leaves when all has. Of a table from which rows are picked, only those move.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
class Demand:
    """What a section asks for. Times are in seconds.

    `launch` and `fill` it waits for, `link` is the time of collectives between chips. `work` has
    the operations of each operator that computes, and `shares` its part of the compute units, which
    takes it `compute` seconds for the slowest one. `held` and `streams` are the bytes to move of
    each value, by name. One value is moved by so many streams as `each` says.
    """

    launch: float = 0.0
    fill: float = 0.0
    link: float = 0.0
    compute: float = 0.0
    work: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, int] = field(default_factory=dict)
    streams: Mapping[str, int] = field(default_factory=dict)
    each: float = 1.0

    @property
    def fixed(self) -> float:
        """Seconds that pass whatever is computed and moved meanwhile."""
        return self.launch + self.fill + self.link


class Demands:
    """The demands of the sections of one stage on one device."""

    def __init__(self, stage: PlannedStage, arch: Arch, states: Collection[str] = ()) -> None:
        """`states` are inputs that are weights."""
        self._stage = stage
        self._view = stage.view
        self._arch = arch
        self._pcus = limits_of(arch).pcus
        self._collectives = collectives_of(stage.view, states) if arch.chips > 1 else {}

    def all(self) -> list[Demand]:
        """Return the demand of every section, in order.

        What happens in a REDUCE section is up to the host: it asks for nothing.
        """
        sections = zip(self._stage.sections.sections, self._stage.live_sets, strict=True)
        return [self.of(section, sets) for section, sets in sections]

    def of(self, section: PlannedSection, sets: LiveSets) -> Demand:
        """Return the demand of one section."""
        if section.type is SectionType.REDUCE:
            return Demand()
        ops = self._stage.fusion.ops_of(section.groups)
        picked = _picked(self._view, sets)
        moved = {
            name: picked.get(name, self._view.values[name].modelled_nbytes)
            for name in (*sets.live_in, *sets.weights, *sets.live_out)
        }
        held = {name for name in moved if name in self._view.held and name not in picked}
        work = {op: self._view.ops[op].flops for op in ops if op_pcus(self._view.ops[op])}
        shares = self._shares(work)
        told = [self._collectives[op] for op in ops if op in self._collectives]
        several = self._arch.fused_streams
        return Demand(
            launch=self._arch.launch.value,
            fill=max(_depth(self._view, ops) - 1, 0) * self._arch.fill.value,
            link=link_time(self._arch, told) if told else 0.0,
            compute=max((self.seconds(work[op], n) for op, n in shares.items()), default=0.0),
            work=work,
            shares=shares,
            held={name: nbytes for name, nbytes in moved.items() if name in held},
            streams={name: nbytes for name, nbytes in moved.items() if name not in held},
            each=several.value if several is not None and len(section.groups) > 1 else 1.0,
        )

    def seconds(self, flops: int, pcus: int) -> float:
        """Return the seconds that so many compute units take for so many operations."""
        return flops / (pcus * self._arch.flops_per_pcu)

    def _shares(self, work: Mapping[str, int]) -> dict[str, int]:
        """Divide the compute units by work; each operator gets at least what it needs to run."""
        spare, together = max(self._pcus - len(work), 0), sum(work.values())
        return {op: 1 + spare * flops // together for op, flops in work.items()}


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
