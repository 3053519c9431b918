"""What sections would cost on a device. Everything here is modelled, nothing measured.

    latency = launch + fill + max(compute, memory)
    memory  = sum over regions (bytes that cross the section's border there / speed of the region)

`launch` starts the section's program. `fill` is the time until the last stage of the pipeline has
its first data: the longest chain of computing operators, less one, times the time of a stage.
`compute` is the time of the slowest operator on its share of the chip. Each byte that crosses the
border counts at the speed of the region where its symbol lies, HOST at that of the link; what flows
inside costs SRAM, no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import networkx as nx

from pef.program import Estimate, RegionKind, SectionType
from sambac.arch import Arch

from .plans import Border, PlannedSection
from .program_plan import PlannedStage
from .resources import limits_of, op_pcus, use_of
from .view import DataflowView


def estimate_sections(
    stages: Sequence[PlannedStage], arch: Arch, homes: Mapping[str, RegionKind]
) -> tuple[Estimate, ...]:
    """Estimate every section of every stage, in order; `homes` has the region of each value.

    What has no region has a size known only at run time: it counts as in main memory, with 1 for
    every open dimension. What happens in a REDUCE section is up to the host, so that only its bytes
    are counted.
    """
    return tuple(
        model.section(stage.fusion.ops_of(section.groups), section, border)
        for stage in stages
        for model in (_Model(stage.view, arch, homes),)
        for section, border in zip(stage.sections.sections, stage.borders, strict=True)
    )


class _Model:
    """The cost model of one device, applied to one graph."""

    def __init__(self, view: DataflowView, arch: Arch, homes: Mapping[str, RegionKind]) -> None:
        self._view = view
        self._arch = arch
        self._homes = homes
        self._limits = limits_of(arch)

    def section(self, ops: Sequence[str], section: PlannedSection, border: Border) -> Estimate:
        """Estimate `section`, which computes `ops` and has this border."""
        read, written, weights = (
            sum(self._size(name) for name in names)
            for names in (border.inputs, border.outputs, border.weights)
        )
        if section.type is SectionType.REDUCE:
            return Estimate(bytes_in=read)
        memory = self._memory_time(border)
        shares = self._shares(ops, memory)
        terms = {
            "compute": max((self._compute_time(op, n) for op, n in shares.items()), default=0.0),
            "memory": memory,
            "launch": self._arch.launch.value,
            "fill": max(self._depth(ops) - 1, 0) * self._arch.fill.value,
        }
        use = use_of(self._view, ops, self._limits)
        return Estimate(
            latency=terms["launch"] + terms["fill"] + max(terms["compute"], terms["memory"]),
            flops=sum(self._view.ops[op].flops for op in ops),
            pcus=sum(shares.values()),
            pmus=use.pmus,
            sram=use.sram,
            bytes_in=read,
            bytes_out=written,
            bytes_weights=weights,
            limited_by=max(terms, key=terms.__getitem__),
        )

    def _size(self, value: str) -> int:
        return self._view.values[value].modelled_nbytes

    def _memory_time(self, border: Border) -> float:
        """Return the seconds to move what crosses a border; 0 for regions of unknown speed."""
        moved: dict[RegionKind, list[int]] = {}
        for name in (*border.inputs, *border.weights, *border.outputs):
            home = self._homes.get(name, self._arch.main_memory)
            moved.setdefault(home, []).append(self._size(name))
        return sum(self._move_time(kind, sizes) for kind, sizes in moved.items())

    def _move_time(self, kind: RegionKind, sizes: Sequence[int]) -> float:
        """Return the seconds to move streams of these sizes at once to or from one region."""
        rate = self._arch.speed(kind)
        if rate is None:
            return 0.0
        if self._arch.stream_bandwidth is not None:
            rate = min(rate, len(sizes) * self._arch.stream_bandwidth.value)
        return sum(sizes) / rate

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
