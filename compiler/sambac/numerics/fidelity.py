"""What the multiplier of a device takes of its operands.

In each pass it takes 5 digits of one operand (source A) and 7 of the other (source B), a leading
one included, and the products of the passes are summed:

    pass   source A        source B
    0      first 5         first 7        LoFi and all above
    1      next 5          first 7        HiFi2 and above
    2      first 5         next 4         HiFi3 and above
    3      next 5          next 4         HiFi4

Of a matrix product the left operand is source B and the right one source A; of an elementwise
product it is the other way round. A sum over an axis takes what is summed as source A.

Passes with a common part are one product: HiFi2 is (10 digits of A) * (7 of B), HiFi4 is
(10 of A) * (11 of B), and HiFi3 is HiFi2 and one more product, (5 of A) * (next 4 of B).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

LARGEST = np.finfo(np.float32).max
"""The largest number of float32."""

FULL = "full"
"""The fidelity of products that are not split at all."""


@dataclass(frozen=True, slots=True)
class SourceRegister:
    """An operand of the multiplier: how many digits are in its `first` part, and in both."""

    first: int
    both: int


SOURCE_A = SourceRegister(5, 10)
SOURCE_B = SourceRegister(7, 11)


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Which passes are made: whether those of the second part of A, of B, and of both."""

    second_a: bool = False
    second_b: bool = False
    second_both: bool = False

    def digits(self, source: SourceRegister) -> int:
        """Return how many digits of an operand the passes that are one product take."""
        second = self.second_a if source is SOURCE_A else self.second_both
        return source.both if second else source.first

    @property
    def has_more(self) -> bool:
        """Whether one more product is needed, of the first part of A and the second of B."""
        return self.second_b and not self.second_both


FIDELITIES: Mapping[str, Fidelity] = MappingProxyType(
    {
        "LoFi": Fidelity(),
        "HiFi2": Fidelity(second_a=True),
        "HiFi3": Fidelity(second_a=True, second_b=True),
        "HiFi4": Fidelity(second_a=True, second_b=True, second_both=True),
    }
)
"""All fidelities by their names, but for the full one."""


def truncated(x: NDArray[np.float32], digits: int) -> NDArray[np.float32]:
    """Return float32 numbers whose magnitudes are cut to so many digits, infinities as they are.

    NaN stays NaN, and 0 has no sign.
    """
    wide = np.asarray(x, np.float64)
    share, exponents = np.frexp(wide)
    cut = np.ldexp(np.trunc(np.ldexp(share, digits)), exponents - digits)
    return np.where(np.isfinite(wide), cut + 0.0, wide).astype(np.float32)


def parts(
    x: NDArray[np.float32], source: SourceRegister
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the first and the second part of an operand; they are float32 of its shape.

    An infinity has that of the largest number as its second part.
    """
    finite = np.clip(x, -LARGEST, LARGEST)
    second = truncated(finite, source.both) - truncated(finite, source.first)
    return truncated(x, source.first), second
