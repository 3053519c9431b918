"""How a PEF is laid out: its header, and its segments.

    0   offset of the root table, the identifier `PEFB`      as in every FlatBuffer
    8   header: 120 bytes, which say how long they are
    128 metadata: the rest of the FlatBuffer (`pef.fbs`)
    ..  zeros up to a multiple of 4096, the segment base
    ..  segments, each at the next multiple of 4096 after the one before, with zeros between them

The file ends with the last byte of the last segment, or at the segment base. The header's digest
is the SHA-256 of all bytes before the padding, the digest itself taken as zero. Segments are hashed
in leaves of 4 MiB, whose digests are part of the metadata. All numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import NamedTuple

from .errors import PefError
from .generated.layout import VERSION
from .marks import SegmentIndex

FORMAT_VERSION: tuple[int, int] = VERSION
IDENTIFIER = b"PEFB"
# The high first byte and the line ends show a transfer as text, as in PNG.
MAGIC = b"\x89PEF\r\n\x1a\n"
PAGE = 4096
LEAF = 4 << 20
DIGEST_SIZE = 32

HEADER_AT = 8
_FIELDS = struct.Struct("<8sIHHQQQ32s")
HEADER_SIZE = 120
METADATA_AT = HEADER_AT + HEADER_SIZE
_DIGEST_AT = HEADER_AT + _FIELDS.size - DIGEST_SIZE
# What later minor versions may append to the header.
_LONGEST_HEADER = PAGE - HEADER_AT


def padded(size: int) -> int:
    """`size` rounded up to whole pages."""
    return -(-size // PAGE) * PAGE


def leaves(size: int) -> int:
    """How many leaves a segment of `size` bytes has."""
    return -(-size // LEAF)


NO_PEF = "is not a PEF file"
"""What is said of a file that is something else, or nothing."""


class Header(NamedTuple):
    """The header of a PEF. Sizes and positions in bytes; `version` is (major, minor)."""

    version: tuple[int, int]
    length: int
    metadata_size: int
    segment_base: int
    total_size: int
    digest: bytes = bytes(DIGEST_SIZE)

    @property
    def metadata_at(self) -> int:
        """Where the metadata begins: later minor versions may have a longer header."""
        return HEADER_AT + self.length

    @property
    def head_size(self) -> int:
        """Everything before the padding that leads to the segment base."""
        return self.metadata_at + self.metadata_size

    def pack(self) -> bytes:
        """The header as `self.length` bytes."""
        fields = _FIELDS.pack(
            MAGIC,
            self.length,
            *self.version,
            self.metadata_size,
            self.segment_base,
            self.total_size,
            self.digest,
        )
        return fields.ljust(self.length, b"\0")


def head_digest(head: bytes | memoryview) -> bytes:
    """The digest that belongs into the header of `head`, whatever stands there now."""
    digest = hashlib.sha256(head[:_DIGEST_AT])
    digest.update(bytes(DIGEST_SIZE))
    digest.update(head[_DIGEST_AT + DIGEST_SIZE :])
    return digest.digest()


def segment_base(size: int) -> int:
    """Where segments begin behind a finished FlatBuffer of `size` bytes, in the file."""
    return padded(size + HEADER_SIZE)


def finish_head(flatbuffer: bytes | bytearray | memoryview, segments_size: int) -> bytes:
    """The head of a file: a finished FlatBuffer with the header put after its first 8 bytes.

    `segments_size` is the distance from the segment base to the end of the file.
    """
    (root,) = struct.unpack_from("<I", flatbuffer)
    start = struct.pack("<I", root + HEADER_SIZE) + bytes(flatbuffer[4:HEADER_AT])
    metadata = memoryview(flatbuffer)[HEADER_AT:]
    base = segment_base(len(flatbuffer))

    def head(digest: bytes) -> bytes:
        header = Header(
            FORMAT_VERSION, HEADER_SIZE, len(metadata), base, base + segments_size, digest
        )
        return b"".join((start, header.pack(), metadata))

    return head(head_digest(head(bytes(DIGEST_SIZE))))


def parse_header(file: memoryview) -> Header:
    """The header of a whole mapped file, proven to fit it. Raises `PefError`."""
    if bytes(file[4:HEADER_AT]) != IDENTIFIER or len(file) < HEADER_AT + _FIELDS.size:
        raise PefError(NO_PEF)
    magic, length, major, minor, metadata, base, total, digest = _FIELDS.unpack_from(
        file, HEADER_AT
    )
    if magic != MAGIC:
        raise PefError(NO_PEF)
    header = Header((major, minor), length, metadata, base, total, digest)
    if major != FORMAT_VERSION[0]:
        raise PefError(version_text(header.version))
    if not _FIELDS.size <= length <= _LONGEST_HEADER or length % 8:
        raise PefError(f"is damaged: its header is said to have {length} bytes")
    if base != padded(header.head_size) or total < base:
        raise PefError("is damaged: the sizes in its header contradict each other")
    if len(file) < total:
        raise PefError(f"is truncated: it has {len(file)} bytes of {total}; fetch it again")
    if len(file) > total:
        raise PefError(f"has {len(file) - total} bytes too many after its end")
    if head_digest(file[: header.head_size]) != digest:
        raise PefError("is damaged: its metadata does not match their SHA-256")
    if any(file[HEADER_AT + _FIELDS.size : HEADER_AT + length]) and minor <= FORMAT_VERSION[1]:
        raise PefError("is damaged: reserved bytes of its header are not zero")
    return header


def version_text(version: tuple[int, int]) -> str:
    """What to tell the user of a file whose format `version` cannot be read."""
    ours = ".".join(map(str, FORMAT_VERSION))
    theirs = ".".join(map(str, version))
    if version < FORMAT_VERSION:
        return (
            f"was written by format {theirs}, which this runtime (format {ours}) no longer "
            "reads; compile the model again"
        )
    return f"was written by format {theirs}, this runtime reads up to {ours}; upgrade sambaflow"


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
