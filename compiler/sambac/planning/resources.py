"""What operators and the values between them take of the chip.

An operator that computes takes at least one compute unit (PCU). A value that one section both
writes and reads stays on chip in a buffer of twice its size, so that the writer fills one half
while readers drain the other; every other value streams through one memory unit (PMU). Weights
stream too. Copies of cloned operators take nothing: they are constants and a few integers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sambac.arch import Arch

from .view import DataflowView, OpFacts

STREAM_PMUS = 1


@dataclass(frozen=True, slots=True)
class Limits:
    """What the chip has: compute units, memory units, and bytes of one memory unit."""

    pcus: int
    pmus: int
    pmu_bytes: int


@dataclass(frozen=True, slots=True)
class Use:
    """What a section takes of the chip; `sram` is the bytes of its buffers."""

    pcus: int
    pmus: int
    sram: int = 0

    def within(self, limits: Limits) -> bool:
        """Return whether the chip has that much."""
        return self.pcus <= limits.pcus and self.pmus <= limits.pmus


def limits_of(arch: Arch) -> Limits:
    """Return the on-chip limits of an architecture."""
    return Limits(int(arch.pcus.value), int(arch.pmus.value), int(arch.pmu_bytes.value))


def op_pcus(op: OpFacts) -> int:
    """Return the fewest compute units that can run `op`."""
    return 1 if op.flops else 0


def buffer_pmus(nbytes: int | None, pmu_bytes: int) -> int:
    """Return the memory units of a double buffer; one for a size known only at run time."""
    return max(-(-2 * (nbytes or 0) // pmu_bytes), 1)


def use_of(view: DataflowView, ops: Iterable[str], limits: Limits) -> Use:
    """Return what `ops` take together."""
    members = tuple(ops)
    written = {value for op in members for value in view.ops[op].outputs}
    read = {value for op in members for value in view.reads[op]}
    sizes = [view.values[value].nbytes or 0 for value in written & read]
    return Use(
        pcus=sum(op_pcus(view.ops[op]) for op in members),
        pmus=sum(buffer_pmus(size, limits.pmu_bytes) for size in sizes)
        + STREAM_PMUS * len(written ^ read),
        sram=2 * sum(sizes),
    )
