"""The numbers of a device as a PEF holds them, each with its origin and source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from typing import get_args

from pef.costs import DeviceNumber
from pef.symbols import RegionKind

from .loading import Arch, Constant, Origin, arch_from

_REQUIRED = (
    "pcus", "pmus", "pmu_bytes", "peak_flops", "compute_efficiency", "launch", "fill"
)  # fmt: skip


def device_numbers(arch: Arch) -> tuple[DeviceNumber, ...]:
    """Return all numbers of `arch` that are known, by the names of its file."""
    return tuple(
        DeviceNumber(name, float(each.value), each.unit, each.origin, each.source)
        for name, each in _constants(arch)
        if each is not None
    )


def _constants(arch: Arch) -> Iterator[tuple[str, Constant | None]]:
    for field in fields(arch):
        value = getattr(arch, field.name)
        if isinstance(value, Constant):
            yield field.name, value
    for kind, capacity in arch.regions.items():
        word = kind.name.lower()
        yield f"{word}_capacity", capacity
        if kind in arch.tiers:
            yield f"{word}_bandwidth", arch.tiers[kind].bandwidth
            yield f"{word}_efficiency", arch.tiers[kind].efficiency
    if arch.chips > 1:
        yield "chips", Constant(arch.chips, "units", "specified", "the option n_chips")


def arch_of(name: str, numbers: Iterable[DeviceNumber]) -> Arch | None:
    """Return the device that `device_numbers` describes; None if one is missing, or impossible.

    It is that of all tiles and chips that were used, as one.
    """
    known = {each.name: _constant(each) for each in numbers}
    if not {*_REQUIRED, f"{RegionKind.DDR.name.lower()}_capacity"} <= known.keys():
        return None
    if not all(each.value > 0 for each in known.values()):
        return None
    chips = int(known["chips"].value) if "chips" in known else 1
    return replace(arch_from(name, name, known), chips=chips)


def _constant(number: DeviceNumber) -> Constant:
    origin: Origin = "assumed"
    for word in get_args(Origin):
        if word == number.origin:
            origin = word
    return Constant(number.value, number.unit, origin, number.source)
