"""What a device is to the compiler: a frozen record of constants, each with its origin.

No number stands alone. A `Constant` says in which unit it is, whether a publication states it
(`specified`), a fit to measurements gave it (`calibrated`) or we had to choose it (`assumed`),
and names the source. What nobody has published is absent (`None`), never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

from pef.program import RegionKind

Origin = Literal["specified", "calibrated", "assumed"]
ORIGINS: tuple[str, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another published figure for a constant, carried so that a user can choose it."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number with its unit, origin and source; `alternatives` are figures that contradict it."""

    value: float
    unit: str
    origin: Origin
    source: str
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """How fast the device reads one address space; `None` where nobody published it.

    `bandwidth` is in bytes per second, `efficiency` the share of it that programs reach.
    """

    bandwidth: Constant | None
    efficiency: Constant | None


@dataclass(frozen=True)
class Arch:
    """A device: on-chip limits, address spaces and what the cost model needs.

    `pcus` and `pmus` are compute and memory units of the chip, `pmu_bytes` the SRAM of one memory
    unit. `peak_flops` is the data-sheet rate of the whole chip in BF16, `compute_efficiency` the
    share that compiled programs reach. `launch` is the time to start a section, `fill` the time
    that one pipeline stage adds before the first result leaves the section.
    `capacities` are bytes of each address space that the device has.
    """

    name: str
    title: str
    pcus: Constant
    pmus: Constant
    pmu_bytes: Constant
    peak_flops: Constant
    compute_efficiency: Constant
    launch: Constant
    fill: Constant
    regions: dict[RegionKind, Constant]
    tiers: dict[RegionKind, Tier] = field(default_factory=dict)
    stream_bandwidth: Constant | None = None

    @property
    def capacities(self) -> dict[RegionKind, int]:
        """Bytes of each address space of the device."""
        return {kind: int(constant.value) for kind, constant in self.regions.items()}

    @property
    def main_memory(self) -> RegionKind:
        """Where tensors live unless something asks for another place: HBM, or DDR without it."""
        return RegionKind.HBM if RegionKind.HBM in self.regions else RegionKind.DDR

    @property
    def flops_per_pcu(self) -> float:
        """Floating-point operations per second that one compute unit reaches."""
        return self.peak_flops.value * self.compute_efficiency.value / self.pcus.value

    def speed(self, kind: RegionKind) -> float | None:
        """Bytes per second that a section moves to and from an address space, if it is known."""
        tier = self.tiers.get(kind)
        if tier is None or tier.bandwidth is None:
            return None
        share = tier.efficiency.value if tier.efficiency else 1.0
        return tier.bandwidth.value * share
