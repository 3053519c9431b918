"""What the original has in compiled code, and programs import from here: formats and fidelities."""

from __future__ import annotations

from enum import Enum
from typing import Self


class _Named(Enum):
    """What is written by its name."""

    def to_json(self) -> str:
        """Return the name, which `from_json` reads."""
        return self.name

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the member called `text`. Raises `KeyError` where there is none."""
        return cls[text]


class DataFormat(_Named):
    """How the device holds numbers; the values are the original's."""

    Float32 = 0
    Float16 = 1
    Bfp8 = 2
    Bfp4 = 3
    Float16_b = 5
    Bfp8_b = 6
    Bfp4_b = 7
    Int32 = 8
    Lf8 = 10
    Bfp2 = 11
    UInt16 = 12
    Int8 = 14
    Bfp2_b = 15
    RawUInt8 = 0xF0
    RawUInt16 = 0xF1
    RawUInt32 = 0xF2
    Invalid = 0xFF


class MathFidelity(_Named):
    """How many passes the multiplier takes for a product; the values are the original's."""

    LoFi = 0
    HiFi2 = 2
    HiFi3 = 3
    HiFi4 = 4
    Invalid = 0xFF
