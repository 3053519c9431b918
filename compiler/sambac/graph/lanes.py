"""Which rows onnxruntime's fused multiply-add wants, and how a vector is shared among threads.

GatedAdd(x, y, gates) is x + y * gate for each row of a matrix, and a thread takes whole rows: a
vector of one row is one thread's work, however long it is.
"""

from __future__ import annotations

LANES = 8
"""Rows of a vector: as many threads can share it, and more of them would have little to do."""
SHORTEST_LANE = 1 << 10
"""Elements from which on a row is worth a call of the kernel."""
SHORTEST_GATED_ROW = 1 << 6
"""Elements from which on a GatedAdd over rows takes less time than a Mul and an Add."""


def in_lanes(elements: int) -> tuple[int, ...]:
    """Return the shape of a vector of so many elements: [lanes, length], or [length] if short."""
    length, rest = divmod(elements, LANES)
    return (elements,) if rest or length < SHORTEST_LANE else (LANES, length)
