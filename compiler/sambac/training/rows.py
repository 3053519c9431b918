"""Large vectors as rows that a cache holds, so that updates can go row by row.

`variants.chunks` says what is made of it; docs/decisions/optimizers.md how much it gains.
"""

from __future__ import annotations

ROW_BYTES = 1 << 19
"""Of the longest row: a handful of these fits the second-level cache of most processors."""
SHORTEST_BYTES = ROW_BYTES // 8
"""Of the shortest row: for shorter ones, to begin with a row takes what the cache saves."""
_LEAST_BYTES = 3 << 18
"""What a vector needs to be worth it: smaller ones stay in a cache from operator to operator."""
_ALIGNMENT = 64


def in_rows(size: int, itemsize: int) -> tuple[int, ...]:
    """Return the shape of `size` bytes of elements: [rows, length], or [length] where none fits.

    Rows are equally long and begin at multiples of 64 bytes.
    """
    if size >= _LEAST_BYTES:
        for row in range(ROW_BYTES, SHORTEST_BYTES - 1, -_ALIGNMENT):
            if size % row == 0:
                return size // row, row // itemsize
    return (size // itemsize,)
