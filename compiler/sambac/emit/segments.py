"""Segments of a file in the making."""

from __future__ import annotations

from pef.segments import DataRef, Piece, Segment

PROGRAM_SEGMENT = 0
WEIGHT_SEGMENT = 1


class SegmentBuilder:
    """Lays pieces of data out one after the other, each on an aligned offset."""

    def __init__(self, name: str, alignment: int) -> None:
        self._name = name
        self._alignment = alignment
        self._pieces: list[Piece] = []
        self._size = 0

    def add(self, segment: int, data: bytes | memoryview) -> DataRef:
        """Append `data` and return where it lies in segment number `segment`."""
        size = len(data)
        if not size:
            return DataRef(segment, 0, 0)
        offset = -(-self._size // self._alignment) * self._alignment
        self._pieces.append(Piece(offset, data))
        self._size = offset + size
        return DataRef(segment, offset, size)

    def build(self) -> Segment:
        """Return the segment with everything added so far."""
        return Segment(self._name, self._size, tuple(self._pieces))
