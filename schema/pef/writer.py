"""Writing a PEF: whole or not at all, without ever holding its segments in memory."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

from .arguments import PATH, misfits
from .codec import StoredSegment, encode
from .container import (
    DIGEST_SIZE,
    IDENTIFIER,
    LEAF,
    Segment,
    finish_head,
    leaves,
    padded,
    segment_base,
)
from .errors import PefError
from .files import replacing
from .generated.layout import ROOT, TABLES
from .program import Program
from .rules import check_program
from .structure import Tree

_ZEROS = memoryview(bytes(LEAF))


def write(program: Program, path: str | os.PathLike[str]) -> None:
    """Write `program` to `path`, replacing what is there only when everything is on the disk.

    Segments are streamed from the buffers they refer to, gaps between pieces stay holes. Equal
    programs give equal bytes. Raises `PefError` if the program breaks a rule of `check_program`
    or the file cannot be written; then nothing is left behind and an older file is untouched.
    """
    if told := misfits(path=(path, PATH)):
        raise PefError(told[0])
    name = os.fspath(path)
    if problems := check_program(program):
        raise PefError.listing(f"{name} would not be a valid PEF", problems)
    try:
        with replacing(name) as temporary:
            _write_to(program, temporary)
    except OSError as error:
        raise PefError(f"{name} cannot be written: {error.strerror or error}") from error
    except PefError as error:
        raise PefError(f"{name} cannot be written: {error}") from None


def save(self: Program, path: str | os.PathLike[str]) -> None:
    """Write the program to `path`, whole or not at all. Raises `pef.PefError`."""
    write(self, path)


Program.save = save  # users call it on what they have compiled, and no import leads upward for it


def _write_to(program: Program, path: Path) -> None:
    file = os.open(path, os.O_RDWR)
    try:
        _write_all(program, file)
    finally:
        os.close(file)


def _write_all(program: Program, file: int) -> None:
    """Segments first, hashed on their way, then the head that holds their digests."""
    offsets = _segment_offsets(program.segments)
    end = offsets[-1] + program.segments[-1].size if offsets else 0
    metadata = _metadata(program, offsets)
    base = segment_base(len(metadata))
    digests = [
        _write_segment(file, base + offset, segment)
        for offset, segment in zip(offsets, program.segments, strict=True)
    ]
    _fill_in(metadata, b"".join(digests))
    _write_at(file, memoryview(finish_head(metadata, end)), 0)
    os.ftruncate(file, base + end)


def _segment_offsets(segments: tuple[Segment, ...]) -> list[int]:
    offsets, end = [], 0
    for segment in segments:
        offsets.append(padded(end))
        end = offsets[-1] + segment.size
    return offsets


def _metadata(program: Program, offsets: list[int]) -> bytearray:
    """The program as a FlatBuffer, with zeros for the digests of segments."""
    stored = tuple(
        StoredSegment(segment.name, offset, segment.size, bytes(leaves(segment.size) * DIGEST_SIZE))
        for segment, offset in zip(program.segments, offsets, strict=True)
    )
    return _flatbuffer(encode(program, stored))


def _fill_in(metadata: bytearray, digests: bytes) -> None:
    """Put the digests of segments where the FlatBuffer has zeros for them."""
    # Only writing needs flatbuffers: whoever runs a PEF does not pay for importing it.
    from .generated.pef_generated import Program as Stored

    place = Stored.GetRootAs(metadata).Segments().DigestAsNumpy()
    place[:] = np.frombuffer(digests, np.uint8)


def _flatbuffer(tree: Tree) -> bytearray:
    """The columns of a program, packed by flatc's code."""
    # As in `_fill_in`.
    from flatbuffers import Builder

    from .generated import pef_generated

    builder = Builder(1 << 16)

    def pack(kind: str, node: Tree) -> int:
        offsets = {}
        for name, what, _ in filter(None, TABLES[kind]):
            value = node[name]
            packed = (
                pack(what, value) if isinstance(value, dict) else builder.CreateNumpyVector(value)
            )
            offsets[name.title().replace("_", "")] = packed
        getattr(pef_generated, f"{kind}Start")(builder)
        for name, offset in offsets.items():
            getattr(pef_generated, f"{kind}Add{name}")(builder, offset)
        end: int = getattr(pef_generated, f"{kind}End")(builder)
        return end

    builder.Finish(pack(ROOT, tree), IDENTIFIER)
    packed: bytearray = builder.Output()
    return packed


@dataclass(slots=True)
class _Leaves:
    """Digests of the leaves of a segment that passes by."""

    digests: list[bytes] = field(default_factory=list)
    room: int = LEAF
    current: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, chunk: memoryview) -> None:
        """Take the next bytes, at most to the end of the leaf."""
        self.current.update(chunk)
        self.room -= len(chunk)
        if not self.room:
            self.close()

    def close(self) -> None:
        """End the leaf that was begun, if one was."""
        if self.room < LEAF:
            self.digests.append(self.current.digest())
            self.current, self.room = hashlib.sha256(), LEAF

    def add_zeros(self, size: int) -> None:
        """Take `size` zeros; those that fill a leaf need no hashing."""
        while size:
            step = min(size, self.room)
            if step == LEAF:
                self.digests.append(_zero_leaf())
            else:
                self.add(_ZEROS[:step])
            size -= step


@cache
def _zero_leaf() -> bytes:
    return hashlib.sha256(_ZEROS).digest()


def _write_segment(file: int, start: int, segment: Segment) -> bytes:
    """Write the pieces of a segment that begins at `start`; the result are its digests."""
    hashed, position = _Leaves(), 0
    for piece in segment.pieces:
        hashed.add_zeros(piece.offset - position)
        position = piece.offset
        data = _as_bytes(piece.data)
        while data:
            chunk = data[: hashed.room]
            hashed.add(chunk)
            _write_at(file, chunk, start + position)
            position += len(chunk)
            data = data[len(chunk) :]
    hashed.add_zeros(segment.size - position)
    hashed.close()
    return b"".join(hashed.digests)


def _as_bytes(data: bytes | memoryview) -> memoryview:
    view = memoryview(data)
    return view.cast("B") if view.nbytes else memoryview(b"")


def _write_at(file: int, data: memoryview, position: int) -> None:
    while data:
        written = os.pwrite(file, data, position)
        position += written
        data = data[written:]
