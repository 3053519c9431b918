"""Hints to the mapper, which go with a compilation as `metadata={hint.key: hint}`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import ClassVar

__all__ = ["ConvTilingMetadata"]


@dataclass(frozen=True)
class ConvTilingMetadata:
    """The size of the input that convolutions are tiled over, batch first.

    Memory of the modelled device is planned for whole tensors, which need no tiling: the hint is
    carried and changes nothing.
    """

    key: ClassVar[str] = "conv_tiling"
    original_size: tuple[int, ...] = ()

    def __init__(self, original_size: Iterable[int] = ()) -> None:
        object.__setattr__(self, "original_size", tuple(map(index, original_size)))
