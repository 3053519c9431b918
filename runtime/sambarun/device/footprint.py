"""What an executable holds in memory: planned, allocated, and what comes beside it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

import pef
from sambarun.arrays import Bytes, address_of

_ENTRY = 8
_PRESENT = 1 << 63


@dataclass(frozen=True, slots=True)
class RegionUse:
    """One region in bytes.

    `planned` is what the plan gives it. Of that `allocated` has memory of this process, and
    `mapped` are constants that sections read from the file, which need none. What is left was
    never needed: nothing that ran has an address there. Once every section has run by itself,
    the two together are what was planned.
    """

    region: pef.RegionKind
    planned: int
    allocated: int
    mapped: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """What an executable holds.

    `beside` are the bytes that the process has taken since the executable was made, other than
    those of the regions that are in use: what onnxruntime takes for sessions and for values inside
    of sections, and whatever else the process did meanwhile. It is None where the system does not
    tell.
    """

    regions: tuple[RegionUse, ...]
    beside: int | None

    @property
    def planned(self) -> int:
        """The bytes planned in all regions."""
        return sum(region.planned for region in self.regions)

    @property
    def allocated(self) -> int:
        """The bytes allocated in all regions."""
        return sum(region.allocated for region in self.regions)


def private_bytes() -> int | None:
    """Return the resident bytes of this process that no file holds; None if nobody knows."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            _, resident, shared, *_ = map(int, file.read().split())
    except (OSError, ValueError):
        return None
    return (resident - shared) * mmap.PAGESIZE


def touched_bytes(buffers: Iterable[Bytes]) -> int:
    """Return how many bytes of `buffers` have been written; the rest exists by name only."""
    try:
        with open("/proc/self/pagemap", "rb", buffering=0) as pages:
            return sum(_touched(pages.fileno(), buffer) for buffer in buffers)
    except OSError:
        return sum(buffer.nbytes for buffer in buffers)


def _touched(pages: int, buffer: Bytes) -> int:
    start = address_of(buffer)
    first, last = start // mmap.PAGESIZE, -(-(start + buffer.nbytes) // mmap.PAGESIZE)
    found = os.pread(pages, (last - first) * _ENTRY, first * _ENTRY)
    present = np.count_nonzero(np.frombuffer(found, np.uint64) & _PRESENT)
    return min(int(present) * mmap.PAGESIZE, buffer.nbytes)
