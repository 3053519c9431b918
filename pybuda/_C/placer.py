"""What memory is laid out by on hardware."""

from __future__ import annotations

from enum import Enum

DRAMPlacementAlgorithm = Enum(
    "DRAMPlacementAlgorithm", "ROUND_ROBIN ROUND_ROBIN_FLIP_FLOP GREATEST_CAPACITY CLOSEST", start=0
)
"""How channels of memory are chosen."""
