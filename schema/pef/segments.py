"""The bytes of a PEF beside its metadata: named segments, made of pieces, and ranges of them."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from .marks import SegmentIndex


@dataclass(frozen=True, slots=True)
class DataRef:
    """A byte range inside one segment of the file."""

    segment: SegmentIndex
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes at an offset of a segment; what lies between two pieces is zero."""

    offset: int
    data: bytes | memoryview


@dataclass(frozen=True, slots=True)
class Segment:
    """A named, page-aligned byte range of the file.

    Pieces are in ascending order and do not overlap. A segment read from a file has one piece, a
    view of the read-only map; a segment made by the compiler refers to the buffers of the model,
    which are copied only when the file is written.
    """

    name: str
    size: int
    pieces: tuple[Piece, ...] = field(repr=False)

    def content(self, ref: DataRef) -> bytes:
        """Return a copy of the bytes of `ref`, which must lie in this segment."""
        data, end = bytearray(ref.size), ref.offset + ref.size
        first = bisect_right(self.pieces, ref.offset, key=lambda piece: piece.offset) - 1
        for piece in self.pieces[max(first, 0) :]:
            if piece.offset >= end:
                break
            start = max(piece.offset, ref.offset)
            part = piece.data[start - piece.offset : end - piece.offset]
            data[start - ref.offset : start - ref.offset + len(part)] = part
        return bytes(data)


class SegmentBuilder:
    """Segment number `number` of a file in the making: pieces, each on an aligned offset."""

    def __init__(self, number: SegmentIndex, name: str, alignment: int) -> None:
        self._number = number
        self._name = name
        self._alignment = alignment
        self._pieces: list[Piece] = []
        self._size = 0

    def add(self, data: bytes | memoryview) -> DataRef:
        """Append `data` and return where it lies."""
        size = len(data)
        if not size:
            return DataRef(self._number, 0, 0)
        offset = -(-self._size // self._alignment) * self._alignment
        self._pieces.append(Piece(offset, data))
        self._size = offset + size
        return DataRef(self._number, offset, size)

    def build(self) -> Segment:
        """Return the segment with everything added so far."""
        return Segment(self._name, self._size, tuple(self._pieces))
