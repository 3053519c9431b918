"""The numbers of a device as a PEF holds them, each with its origin and source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from pef.costs import DeviceNumber

from .loading import Arch, Constant


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
