"""What a device is to the estimates of a program, and what they say of its sections.

Everything here is modelled, nothing measured. Times are in seconds.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeviceNumber:
    """A number of the device that the program was planned for, as the estimates took it.

    Where only some tiles or several chips are used, it is that of all of them together. `origin` is
    how well it is known (`specified`, `calibrated` or `assumed`), `source` who says so.
    """

    name: str
    value: float
    unit: str = ""
    origin: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the cost model says of a section.

    `latency` is launch + fill + held + max(compute, streams) + link, where docs/concepts.md says
    what each is; files without these terms have zeros.
    """

    latency: float = 0.0
    flops: int = 0
    pcus: int = 0
    pmus: int = 0
    sram: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_weights: int = 0
    limited_by: str = ""
    launch: float = 0.0
    fill: float = 0.0
    held: float = 0.0
    compute: float = 0.0
    streams: float = 0.0
    link: float = 0.0
