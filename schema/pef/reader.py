"""Reading a PEF from a read-only memory map, believing nothing that has not been proven."""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import starmap
from types import TracebackType
from typing import Self

from .arguments import PATH, instance, misfits
from .codec import StoredSegment, decode, decode_requirements, decode_segments
from .columns import decode_texts, table
from .container import (
    DIGEST_SIZE,
    FORMAT_VERSION,
    LEAF,
    NO_PEF,
    DataRef,
    Header,
    Piece,
    Segment,
    leaves,
    padded,
    parse_header,
    version_text,
)
from .errors import PefError
from .older import STATED_SINCE, stated
from .program import Program
from .rules import check_descriptive, check_essential, check_references
from .states import (
    ARGIN_VARIANTS,
    RECOMPUTE,
    SEVERAL_MODELS,
    SHARED_REGIONS,
    TRAINING,
    WEIGHT_STATES,
)
from .structure import Tree, read
from .wording import listed

# Names of `Requirements.features` that this runtime can serve.
KNOWN_FEATURES: frozenset[str] = frozenset(
    {ARGIN_VARIANTS, TRAINING, RECOMPUTE, SEVERAL_MODELS, SHARED_REGIONS, WEIGHT_STATES}
)

_REF = instance(DataRef, "a pef.DataRef")


class PefFile:
    """An open PEF; a context manager.

    The header, the metadata's digest and structure and every reference in it have been verified,
    the segments' content has not: `bytes` and `check` do that for what is about to be used. Views
    stay valid after `close`, the map lives as long as any of them. Methods may be called from
    several threads.
    """

    __slots__ = ("_map", "_segments", "_verified", "header", "identity", "path", "program")

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.realpath(path)
        self._map, self.identity = _map(path)
        self.header: Header = parse_header(self._map)
        tree = read(self._map[: self.header.head_size], self.header.metadata_at)
        texts = decode_texts(table(tree, "texts"))
        try:
            _check_features(tree, texts)
            self._segments = decode_segments(tree, texts)
            _check_segments(self._segments, self.header)
            program = decode(tree, texts, tuple(map(self._segment, self._segments)))
        except PefError as error:
            if self.header.version <= FORMAT_VERSION:
                raise
            raise PefError(f"{version_text(self.header.version)} ({error})") from None
        if self.header.version < STATED_SINCE:
            _require(check_references(program))
            program = stated(program, self.header.version)
        _require(check_essential(program))
        self.program: Program = program
        self._verified = [bytearray(leaves(stored.size)) for stored in self._segments]

    def _segment(self, stored: StoredSegment) -> Segment:
        start = self.header.segment_base + stored.offset
        pieces = (Piece(0, self._map[start : start + stored.size]),) if stored.size else ()
        return Segment(stored.name, stored.size, pieces)

    def file_offset(self, ref: DataRef) -> int:
        """Where `ref` begins, counted from the start of the file."""
        return self.header.segment_base + self._segments[ref.segment].offset + ref.offset

    def view(self, ref: DataRef) -> memoryview:
        """The bytes of `ref`, read-only, not checked.

        Raises `PefError` if the file is closed, and if it was cut short since it was opened: to
        read what is not there any more would end the process.
        """
        if not self._map:
            raise PefError(f"{self.path} is closed; open it again")
        mapped = self._map.obj
        if isinstance(mapped, mmap.mmap) and mapped.size() < len(mapped):
            raise PefError(f"{self.path} was cut short while it was open; open it again")
        start = self.file_offset(ref)
        return self._map[start : start + ref.size]

    def bytes(self, ref: DataRef) -> memoryview:
        """The bytes of `ref`, read-only. Raises `PefError` if they are damaged."""
        if told := misfits(ref=(ref, _REF)):
            raise PefError(told[0])
        self.check(ref)
        return self.view(ref)

    def let_go(self, ref: DataRef) -> None:
        """Stop to count `ref`, which was read, as memory of this process; it can be read again.

        The page cache keeps what the file holds.
        """
        if isinstance(self._map.obj, mmap.mmap) and ref.size:
            start = self.file_offset(ref)
            first = start - start % mmap.PAGESIZE
            self._map.obj.madvise(mmap.MADV_DONTNEED, first, start + ref.size - first)

    def check(self, ref: DataRef) -> None:
        """Hash the leaves under `ref` that were not hashed before; `PefError` if one is damaged."""
        if not ref.size:
            return
        for leaf in range(ref.offset // LEAF, (ref.offset + ref.size - 1) // LEAF + 1):
            if not self._verified[ref.segment][leaf]:
                self._check_leaf(ref.segment, leaf)

    def _check_leaf(self, segment: int, leaf: int) -> None:
        """Two threads may hash one leaf at once, which costs time but is right."""
        if not self._is_sound(segment, leaf):
            raise PefError(f"{self.path} is damaged: {self._damage(segment, [leaf])}")
        self._verified[segment][leaf] = 1

    def _is_sound(self, segment: int, leaf: int) -> bool:
        stored = self._segments[segment]
        size = min(LEAF, stored.size - leaf * LEAF)
        ref = DataRef(segment, leaf * LEAF, size)
        expected = stored.digests[leaf * DIGEST_SIZE : (leaf + 1) * DIGEST_SIZE]
        sound = hashlib.sha256(self.view(ref)).digest() == expected
        # Left mapped, it would count once more beside onnxruntime's own map of the file.
        self.let_go(ref)
        return sound

    def _damage(self, segment: int, damaged: Sequence[int]) -> str:
        """Return a sentence on `damaged` leaves of a segment, in their order."""
        stored = self._segments[segment]
        ranges: list[tuple[int, int]] = []
        for leaf in damaged:
            start, end = leaf * LEAF, min((leaf + 1) * LEAF, stored.size)
            if ranges and ranges[-1][1] == start:
                start = ranges.pop()[0]
            ranges.append((start, end))
        spelled = listed([f"{start} to {end}" for start, end in ranges], separator=", ")
        return f"bytes {spelled} of segment '{stored.name}' do not match their SHA-256"

    def content_problems(self) -> Iterator[str]:
        """Hash every leaf of every segment; a sentence for each segment that is damaged."""
        found = [
            (segment, leaf)
            for segment, verified in enumerate(self._verified)
            for leaf in range(len(verified))
        ]
        damaged: dict[int, list[int]] = {}
        for (segment, leaf), sound in zip(found, _map_all(self._is_sound, found), strict=True):
            if not sound:
                damaged.setdefault(segment, []).append(leaf)
        for segment, pieces in damaged.items():
            yield self._damage(segment, pieces)

    def padding_problems(self) -> Iterator[str]:
        """A sentence for each gap of the file, before and between segments, that is not zero."""
        end = self.header.head_size
        for stored in self._segments:
            start = self.header.segment_base + stored.offset
            if bytes(self._map[end:start]).strip(b"\0"):
                yield f"the padding before segment '{stored.name}' is not zero"
            end = start + stored.size
        if not self._segments and bytes(self._map[end:]).strip(b"\0"):
            yield "the padding at its end is not zero"

    def close(self) -> None:
        """Let go of the map; nothing but views taken before works afterwards."""
        self._map = memoryview(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


_HINTS = {
    **dict.fromkeys((".onnx", ".pt2"), "; sambac compile makes one of it"),
    ".tti": "; if it is an image of PyBuda's, pybuda.TTDevice.load_image runs it",
}
"""What to say besides of other files, by how their names end."""


def open(path: str | os.PathLike[str]) -> PefFile:
    """Open a PEF. Raises `PefError` if it is missing, no PEF, of another format or damaged."""
    if told := misfits(path=(path, PATH)):
        raise PefError(told[0])
    name = os.fspath(path)
    try:
        return PefFile(path)
    except PefError as error:
        hint = _HINTS.get(os.path.splitext(name)[1].lower(), "") if str(error) == NO_PEF else ""
        raise PefError(f"{name} {error}{hint}", error.problems) from None
    except OSError as error:
        raise PefError(f"{name} cannot be read: {error.strerror or error}") from error


def verify(path: str | os.PathLike[str]) -> Program:
    """Open a PEF and check everything in it. Raises `PefError` that lists all problems."""
    with open(path) as file:
        problems = [*file.padding_problems(), *file.content_problems()]
        problems += check_descriptive(file.program)
        if problems:
            raise PefError.listing(f"{os.fspath(path)} is damaged", problems)
        return file.program


def _map(path: str | os.PathLike[str]) -> tuple[memoryview, tuple[int, int]]:
    """The whole file, mapped, and its device and inode."""
    # Without O_NONBLOCK, opening a pipe would wait for its writer.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise PefError("is not a PEF file but a " + _kind(status.st_mode))
        if not status.st_size:
            raise PefError("is empty, not a PEF file")
        mapped = mmap.mmap(descriptor, status.st_size, access=mmap.ACCESS_READ)
    finally:
        os.close(descriptor)
    return memoryview(mapped), (status.st_dev, status.st_ino)


def _kind(mode: int) -> str:
    return "folder" if stat.S_ISDIR(mode) else "device or pipe"


def _require(problems: list[str]) -> None:
    if problems:
        raise PefError.listing("is damaged", problems)


def _check_features(tree: Tree, texts: list[str]) -> None:
    needed = decode_requirements(tree, texts).features
    unknown = [f"'{name}'" for name in needed if name not in KNOWN_FEATURES]
    if unknown:
        names = ", ".join(unknown)
        raise PefError(f"needs {names}, which this runtime does not know; upgrade sambaflow")


def _check_segments(segments: tuple[StoredSegment, ...], header: Header) -> None:
    end = 0
    for stored in segments:
        if stored.offset != padded(end):
            raise PefError(f"is damaged: segment '{stored.name}' does not follow the one before")
        end = stored.offset + stored.size
    if header.segment_base + end != header.total_size:
        raise PefError("is damaged: its segments do not end where the file ends")


def _map_all(test: Callable[[int, int], bool], places: list[tuple[int, int]]) -> Iterator[bool]:
    """`test` of all places, in order; in threads where there is enough to do."""
    if len(places) < 8:
        yield from starmap(test, places)
        return
    # Imported here because running a PEF does not need it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:
        yield from pool.map(lambda place: test(*place), places)
