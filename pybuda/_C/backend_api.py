"""Kinds of devices, as the original names them. All are run by the one model of a device here."""

from __future__ import annotations

from enum import Enum

BackendType = Enum("BackendType", "Model Versim Silicon Golden Emulation NoBackend", start=0)
"""What runs programs."""
DeviceMode = Enum("DeviceMode", "CompileAndRun CompileOnly RunOnly", start=0)
"""What is to be done with modules."""


class BackendDevice(Enum):
    """Architectures."""

    Grayskull, Wormhole_B0, Blackhole, Invalid = 0, 1, 2, 0xFF

    @staticmethod
    def from_string(text: str) -> BackendDevice:
        """Return the architecture of this name, in any case. Raises `ValueError` for others."""
        for member in BackendDevice:
            if member.name.lower() == text.lower():
                return member
        names = ", ".join(member.name for member in BackendDevice)
        raise ValueError(f"'{text}' is no architecture; there are {names}")
