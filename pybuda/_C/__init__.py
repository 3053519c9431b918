"""What the original has in compiled code, and programs import from here: formats and fidelities."""

from __future__ import annotations

from enum import Enum
from typing import Self

from . import placer as placer


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

    Float32, Float16, Bfp8, Bfp4, Float16_b, Bfp8_b, Bfp4_b = 0, 1, 2, 3, 5, 6, 7
    Int32, Lf8, Bfp2, UInt16, Int8, Bfp2_b = 8, 10, 11, 12, 14, 15
    RawUInt8, RawUInt16, RawUInt32, Invalid = 0xF0, 0xF1, 0xF2, 0xFF


class MathFidelity(_Named):
    """How many passes the multiplier takes for a product; the values are the original's."""

    LoFi, HiFi2, HiFi3, HiFi4, Invalid = 0, 2, 3, 4, 0xFF


NodeEpochType = Enum("NodeEpochType", "Forward Backward Optimizer", start=0)
"""The pass of a training step that an operator is of."""

globals().update(DataFormat.__members__)  # as the original has it: programs say _C.Float16_b
