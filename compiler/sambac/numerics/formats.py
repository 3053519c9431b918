"""The formats in which a device holds floating-point numbers.

Two families of exponents: 5 bits ("a", as in float16) and 8 bits ("b", as in bfloat16). In a block
format 16 numbers share one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A format: its `name`, and how many `digits` a magnitude has, a leading one included.

    Exponents go from `lowest` to `highest` and are written with `bias` added. `block` says whether
    numbers share them.
    """

    name: str
    digits: int
    lowest: int
    highest: int
    bias: int
    block: bool = False

    @property
    def most(self) -> int:
        """The largest magnitude, in units of its last digit."""
        return (1 << self.digits) - 1


_TABLE = (
    NumberFormat("Float32", 24, -126, 127, 127),
    NumberFormat("Float16", 11, -14, 15, 15),
    NumberFormat("Float16_b", 8, -126, 127, 127),
    NumberFormat("TF32", 11, -126, 127, 127),
    NumberFormat("Lf8", 3, -14, 16, 15),
    NumberFormat("Bfp8", 7, -15, 16, 15, block=True),
    NumberFormat("Bfp4", 3, -15, 16, 15, block=True),
    NumberFormat("Bfp2", 1, -15, 16, 15, block=True),
    NumberFormat("Bfp8_b", 7, -126, 127, 127, block=True),
    NumberFormat("Bfp4_b", 3, -126, 127, 127, block=True),
    NumberFormat("Bfp2_b", 1, -126, 127, 127, block=True),
)

FORMATS: Mapping[str, NumberFormat] = MappingProxyType({each.name: each for each in _TABLE})
"""All formats by their names."""

FLOAT32 = FORMATS["Float32"]
"""The format of numbers that are left as they are."""
