"""Kinds of devices, as the original names them. All are run by the one model of a device here."""

from __future__ import annotations

from enum import Enum


class BackendType(Enum):
    """What runs programs."""

    Model = 0
    Versim = 1
    Silicon = 2
    Golden = 3
    Emulation = 4
    NoBackend = 5


class DeviceMode(Enum):
    """What is to be done with modules."""

    CompileAndRun = 0
    CompileOnly = 1
    RunOnly = 2


class BackendDevice(Enum):
    """Architectures."""

    Grayskull = 0
    Wormhole_B0 = 1
    Blackhole = 2
    Invalid = 0xFF

    @staticmethod
    def from_string(text: str) -> BackendDevice:
        """Return the architecture of this name, in any case. Raises `ValueError` for others."""
        for member in BackendDevice:
            if member.name.lower() == text.lower():
                return member
        names = ", ".join(member.name for member in BackendDevice)
        raise ValueError(f"'{text}' is no architecture; there are {names}")
