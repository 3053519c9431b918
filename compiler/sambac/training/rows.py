"""Vectors over many parameters, laid out as matrices for the kernels of their updates.

Each vector has lanes, which threads share (`graph.lanes`). A large vector is rows that a cache
holds, of lanes each, so that updates can go row by row. `variants.chunks` says what is made of it;
docs/decisions/optimizers.md how much it gains.
"""

from __future__ import annotations

from sambac.graph.lanes import LANES, in_lanes

ROW_BYTES = 1 << 19
"""Of the longest row: a handful of these fits the second-level cache of most processors."""
SHORTEST_BYTES = ROW_BYTES // 8
"""Of the shortest row: for shorter ones, to begin with a row takes what the cache saves."""
_LEAST_BYTES = 3 << 18
"""What a vector needs to be worth it: smaller ones stay in a cache from operator to operator."""
_ALIGNMENT = 64


def in_rows(size: int, itemsize: int) -> tuple[int, ...]:
    """Return the shape of `size` bytes of elements.

    It is [rows, lanes, length] if the vector is large, else [lanes, length] if it is long enough,
    and [length] where neither fits. Rows are equally long and begin at multiples of 64 bytes.
    """
    elements = size // itemsize
    if size >= _LEAST_BYTES:
        for row in range(ROW_BYTES, SHORTEST_BYTES - 1, -_ALIGNMENT):
            if size % row == 0:
                return size // row, LANES, row // itemsize // LANES
    return in_lanes(elements)
