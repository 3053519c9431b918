"""What sections would cost on a device. Everything here is modelled, nothing measured.

    latency = launch + fill + max(compute, memory)

`launch` starts the section's program. `fill` is the time until the last stage of the pipeline has
its first data: the longest chain of computing operators, less one, times the time of a stage.
`compute` is the time of the slowest operator on its share of the chip, `memory` the bytes that
cross the section's border over the bandwidth of main memory. What flows inside costs SRAM, no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

from pef.program import Estimate
from pef.text import plural
from sambac.arch import Arch

from .flow import reads_through_clones
from .plans import Border, CostReport, FusionPlan, SectionPlan
from .resources import limits_of, op_pcus, use_of
from .view import DataflowView


def estimate(
    view: DataflowView,
    fusion: FusionPlan,
    sections: SectionPlan,
    borders: Sequence[Border],
    arch: Arch,
) -> CostReport:
    """Estimate every section of a plan, in the plan's order.

    A size known only at run time counts as 0 bytes and 0 operations, which a warning says.
    """
    model = _Model(view, arch)
    members = [
        [op for group in section.groups for op in fusion.groups[group].ops]
        for section in sections.sections
    ]
    estimates = tuple(
        model.section(ops, border) for ops, border in zip(members, borders, strict=True)
    )
    return CostReport(estimates, tuple(_warnings(view, arch)))


class _Model:
    """The cost model of one device, applied to one graph."""

    def __init__(self, view: DataflowView, arch: Arch) -> None:
        self._view = view
        self._arch = arch
        self._limits = limits_of(arch)
        self._reads = reads_through_clones(view)

    def section(self, ops: Sequence[str], border: Border) -> Estimate:
        """Estimate a section that computes `ops` and has this border."""
        read, written, weights = (
            sum(self._view.values[name].nbytes or 0 for name in names)
            for names in (border.inputs, border.outputs, border.weights)
        )
        streams = len(border.inputs) + len(border.outputs) + len(border.weights)
        memory = self._memory_time(read + written + weights, streams)
        shares = self._shares(ops, memory)
        terms = {
            "compute": max((self._compute_time(op, n) for op, n in shares.items()), default=0.0),
            "memory": memory,
            "launch": self._arch.launch.value,
            "fill": max(self._depth(ops) - 1, 0) * self._arch.fill.value,
        }
        use = use_of(self._view, self._reads, ops, self._limits)
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

    def _memory_time(self, nbytes: int, streams: int) -> float:
        """Return the seconds to move bytes in concurrent streams; 0 if no speed is known."""
        rate = self._arch.reach
        if rate is None or nbytes == 0:
            return 0.0
        if self._arch.stream_bandwidth is not None:
            rate = min(rate, streams * self._arch.stream_bandwidth.value)
        return nbytes / rate

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
        depth: dict[str, int] = {}  # of values made here; operators come in topological order
        deepest = 0
        for op in ops:
            above = max((depth.get(value, 0) for value in self._reads[op]), default=0)
            here = above + op_pcus(self._view.ops[op])
            deepest = max(deepest, here)
            depth.update(dict.fromkeys(self._view.ops[op].outputs, here))
        return deepest


def _warnings(view: DataflowView, arch: Arch) -> list[str]:
    """Say what the estimates had to leave out."""
    found = []
    if arch.reach is None:
        memory = arch.main_memory.name
        found.append(
            f"{arch.name}: the bandwidth of {memory} is not published, so the modelled latencies "
            "leave out the time of memory"
        )
    unknown = sum(1 for facts in view.values.values() if facts.nbytes is None)
    if unknown:
        found.append(
            f"the modelled latencies leave out {plural(unknown, 'value')} whose size is known only "
            "at run time"
        )
    return found
