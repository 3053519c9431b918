"""Reading a FlatBuffer that may hold anything: every position is proven before it is used.

flatbuffers for Python has no verifier, and its accessors read damaged buffers silently wrong.
This walk is driven by the table description generated from the schema, and returns what it
has proven, so nothing is interpreted a second time. No table of the schema contains itself, so
the walk is as short as the schema, whatever the file says.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .errors import PefError
from .generated.layout import ROOT, TABLES

if TYPE_CHECKING:
    from numpy.typing import NDArray

Array: TypeAlias = "NDArray[np.generic]"
Tree: TypeAlias = "dict[str, Array | Tree]"

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")


def read(buffer: memoryview, start: int) -> Tree:
    """The root table as nested dicts of read-only arrays, views of `buffer`.

    `start` is the first position at which anything may lie. Fields that are absent and not
    required have no key. Raises `PefError` if anything lies outside the buffer, is misaligned,
    overlaps something else or is missing.
    """
    walk = _Walk(buffer, start)
    tree = walk.table(ROOT, walk.target(0, ROOT))
    walk.check_extents()
    return tree


@dataclass(frozen=True, slots=True)
class _Walk:
    """One pass over one buffer. `extents` maps each object's position to its end and name."""

    buffer: memoryview
    start: int
    extents: list[tuple[int, int, str]] = field(default_factory=list)
    vtables: set[int] = field(default_factory=set)

    def table(self, kind: str, position: int) -> Tree:
        """The table of type `kind` at `position`, with all that it refers to."""
        vtable, vtable_size, table_size = self.vtable(kind, position)
        tree: Tree = {}
        for slot, description in enumerate(TABLES[kind], start=2):
            if description is None:
                continue
            name, what, required = description
            where = f"{kind}.{name}"
            known = 2 * slot < vtable_size
            offset = _U16.unpack_from(self.buffer, vtable + 2 * slot)[0] if known else 0
            if offset == 0:
                if required:
                    raise _damaged(f"{where} is missing")
                continue
            if not 4 <= offset <= table_size - 4:
                raise _damaged(f"{where} lies outside its table")
            target = self.target(position + offset, where)
            tree[name] = (
                self.table(what, target) if what in TABLES else self.vector(what, target, where)
            )
        return tree

    def vtable(self, kind: str, position: int) -> tuple[int, int, int]:
        """Position and size of a table's vtable, and the size of the table itself."""
        vtable = position - _I32.unpack_from(self.buffer, position)[0]
        self.check(vtable, 4, 2, f"the vtable of {kind}")
        vtable_size, table_size = struct.unpack_from("<HH", self.buffer, vtable)
        if vtable_size < 4 or vtable_size % 2 or table_size < 4:
            raise _damaged(f"the vtable of {kind} has an impossible size")
        self.check(vtable, vtable_size, 2, f"the vtable of {kind}")
        self.claim(position, table_size, 4, kind)
        if vtable not in self.vtables:  # tables of equal form share one
            self.vtables.add(vtable)
            self.claim(vtable, vtable_size, 2, f"the vtable of {kind}")
        return vtable, vtable_size, table_size

    def target(self, position: int, where: str) -> int:
        """Where the offset at `position` leads."""
        if position % 4:
            raise _damaged(f"the offset of {where} is misaligned")
        target: int = position + _U32.unpack_from(self.buffer, position)[0]
        self.check(target, 4, 4, where)
        return target

    def vector(self, dtype: str, position: int, where: str) -> Array:
        """The vector of numbers at `position`."""
        count = _U32.unpack_from(self.buffer, position)[0]
        kind = np.dtype(dtype)
        if (position + 4) % kind.itemsize:
            raise _damaged(f"{where} is misaligned")
        self.claim(position, 4 + count * kind.itemsize, 4, where)
        return np.frombuffer(self.buffer, kind, count, position + 4)

    def check(self, position: int, size: int, alignment: int, where: str) -> None:
        """Refuse a range outside the buffer."""
        if position < self.start or position + size > len(self.buffer):
            raise _damaged(f"{where} lies outside the file's metadata")
        if position % alignment:
            raise _damaged(f"{where} is misaligned")

    def claim(self, position: int, size: int, alignment: int, where: str) -> None:
        """Check a range and note that `where` occupies it."""
        self.check(position, size, alignment, where)
        self.extents.append((position, position + size, where))

    def check_extents(self) -> None:
        """Refuse two objects that share bytes."""
        ordered = sorted(self.extents)
        for (_, end, one), (begin, _, other) in pairwise(ordered):
            if begin < end:
                raise _damaged(f"{one} and {other} overlap")


def _damaged(what: str) -> PefError:
    return PefError(f"is damaged: {what}")
