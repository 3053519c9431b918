"""What the sections would cost on a device. Everything here is modelled, nothing measured."""

from __future__ import annotations

from collections.abc import Sequence

from pef.program import Estimate
from sambac.planning.plans import Boundary, CostReport, FusionPlan, SectionPlan
from sambac.planning.view import DataflowView

from .description import Arch


def estimate(
    view: DataflowView,
    fusion: FusionPlan,
    sections: SectionPlan,
    borders: Sequence[Boundary],
    arch: Arch,
) -> CostReport:
    """Estimate every section of a plan."""
    return CostReport(tuple(_section(view, border, arch) for border in borders))


def _section(view: DataflowView, border: Boundary, arch: Arch) -> Estimate:
    flops = sum(view.ops[op].flops for op in border.ops)
    read, written, weights = (
        sum(view.values[name].nbytes or 0 for name in names)
        for names in (border.inputs, border.outputs, border.weights)
    )
    compute = flops / (arch.flops_per_pcu * arch.pcus.value)
    memory = (read + written + weights) / arch.reach if arch.reach else 0.0
    return Estimate(
        latency=arch.launch.value + max(compute, memory),
        flops=flops,
        pcus=int(arch.pcus.value),
        pmus=int(arch.pmus.value),
        sram=0,
        bytes_in=read,
        bytes_out=written,
        bytes_weights=weights,
        limited_by="compute" if compute > memory else "memory",
    )
