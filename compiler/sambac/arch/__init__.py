"""Descriptions of devices, read from data files."""

from .loading import (
    Alternative,
    Arch,
    Constant,
    Origin,
    Tier,
    arch_text,
    builtin_archs,
    load_arch,
    parse_arch,
)
from .numbers import arch_of, device_numbers
from .sizing import load_device, of_chips, sized

__all__ = [
    "Alternative",
    "Arch",
    "Constant",
    "Origin",
    "Tier",
    "arch_of",
    "arch_text",
    "builtin_archs",
    "device_numbers",
    "load_arch",
    "load_device",
    "of_chips",
    "parse_arch",
    "sized",
]
