"""Names that programs import from here, though they are elsewhere."""

from __future__ import annotations

from sambahost.manipulations import TILE_DIM

from .run import pybuda_reset

__all__ = ["TILE_DIM", "align_up_tile", "pybuda_reset"]


def align_up_tile(size: int) -> int:
    """Return how many rows, or columns, the tiles have that hold so many."""
    return -(-size // TILE_DIM) * TILE_DIM
