"""What operators and the values between them take of the chip.

An operator that computes takes at least one compute unit (PCU). Most values stream: operators pass
them on in tiles. A value that one section both writes and reads is a stage of its pipeline, with a
double buffer: the writer fills one half while readers drain the other. A double buffer takes twice
the size of the value, but no more than the tiles that a stage of the device holds (`stage_pmus`; a
device without that figure buffers values as a whole). What comes from memory or goes there streams
through one memory unit (PMU). Of some values every part is on chip at once: the matrix that a
product keeps while others stream past it (`DataflowView.held`). They take their size, wherever they
come from, but no more than half of the chip, for what is larger is kept in blocks, one after
another. Copies of cloned operators take nothing: they are constants and a few integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sambac.arch import Arch

from .view import DataflowView, OpFacts

STREAM_PMUS = 1


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
    held = view.held if limits.stage_pmus is not None else frozenset()
    inside = {name: _inside(size, name in held, limits) for name, size in view.sizes.items()}
    outside = {
        name: limits.units_of(held_bytes(size, limits)) if name in held else STREAM_PMUS
        for name, size in view.sizes.items()
    }
    return ValueUse({name: limits.units_of(nbytes) for name, nbytes in inside.items()}, outside)


def _inside(nbytes: int, held: bool, limits: Limits) -> int:
    return held_bytes(nbytes, limits) if held else buffer_bytes(nbytes, limits)


def use_of(view: DataflowView, ops: Iterable[str], limits: Limits, values: ValueUse) -> Use:
    """Return what `ops` take together; `values` is what `value_use` says of `view`."""
    members = tuple(ops)
    written = {value for op in members for value in view.ops[op].outputs}
    read = {value for op in members for value in view.reads[op]}
    held = view.held if limits.stage_pmus is not None else frozenset()
    kept = sum(held_bytes(view.sizes[v], limits) for v in (written | read) & held)
    return Use(
        pcus=sum(op_pcus(view.ops[op]) for op in members),
        pmus=values.of(written, read),
        sram=kept + sum(buffer_bytes(view.sizes[v], limits) for v in (written & read) - held),
    )
