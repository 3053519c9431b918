"""The structural verifier: each way in which an offset or a size can lie, and how schemas grow."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import pef
from pef import structure
from pef.codec import decode
from pef.columns import decode_texts, table
from pef.container import METADATA_AT, parse_header
from pef.generated.layout import ROOT, TABLES


class Head:
    """The head of a file, whose fields can be found and forged."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data[: parse_header(memoryview(data)).head_size])

    def read(self) -> structure.Tree:
        return structure.read(memoryview(bytes(self.data)), METADATA_AT)

    def u32(self, position: int) -> int:
        return int(struct.unpack_from("<I", self.data, position)[0])

    def put(self, form: str, position: int, value: int) -> None:
        struct.pack_into(form, self.data, position, value)

    @property
    def root(self) -> int:
        return self.u32(0)

    def vtable(self, table: int) -> int:
        return table - int(struct.unpack_from("<i", self.data, table)[0])

    def slot(self, table: int, kind: str, field: str) -> int:
        """Where the vtable of `table` says where `field` is."""
        names = [row[0] for row in TABLES[kind] if row is not None]
        return self.vtable(table) + 4 + 2 * names.index(field)

    def offset(self, table: int, kind: str, field: str) -> int:
        """Where the offset to `field` stands."""
        slot = self.slot(table, kind, field)
        return table + int(struct.unpack_from("<H", self.data, slot)[0])

    def target(self, table: int, kind: str, field: str) -> int:
        position = self.offset(table, kind, field)
        return position + self.u32(position)


@pytest.fixture
def head(path: Path) -> Head:
    return Head(path.read_bytes())


def at_schedule(head: Head) -> int:
    return head.target(head.root, ROOT, "schedule")


FORGERIES: dict[str, tuple[Callable[[Head], None], str]] = {
    "root outside": (lambda h: h.put("<I", 0, len(h.data)), "Program lies outside"),
    "root huge": (lambda h: h.put("<I", 0, 0xFFFFFFFC), "Program lies outside"),
    "root in the header": (lambda h: h.put("<I", 0, 64), "Program lies outside"),
    "root misaligned": (lambda h: h.put("<I", 0, h.root + 2), "Program is misaligned"),
    "vtable before the start": (
        lambda h: h.put("<i", h.root, h.root),
        "the vtable of Program lies outside",
    ),
    "vtable behind the end": (
        lambda h: h.put("<i", h.root, -(1 << 30)),
        "the vtable of Program lies outside",
    ),
    "vtable misaligned": (
        lambda h: h.put("<i", h.root, h.root - h.vtable(h.root) - 1),
        "the vtable of Program is misaligned",
    ),
    "vtable too short": (lambda h: h.put("<H", h.vtable(h.root), 2), "an impossible size"),
    "vtable of odd size": (lambda h: h.put("<H", h.vtable(h.root), 37), "an impossible size"),
    "vtable too long": (lambda h: h.put("<H", h.vtable(h.root), 0xFFFE), "lies outside"),
    "table too long": (lambda h: h.put("<H", h.vtable(h.root) + 2, 0xFFFF), "lies outside"),
    "table too short": (lambda h: h.put("<H", h.vtable(h.root) + 2, 8), "outside its table"),
    # Tables with as many fields may share a vtable, and Symbols comes before Program.
    "field missing": (
        lambda h: h.put("<H", h.slot(h.root, ROOT, "schedule"), 0),
        "(Program.schedule|Symbols.data) is missing",
    ),
    "field over the vtable offset": (
        lambda h: h.put("<H", h.slot(h.root, ROOT, "schedule"), 2),
        "(Program.schedule|Symbols.data) lies outside its table",
    ),
    "field misaligned": (
        lambda h: h.put("<H", h.slot(h.root, ROOT, "schedule"), 6),
        "the offset of (Program.schedule|Symbols.data) is misaligned",
    ),
    "vector outside": (
        lambda h: h.put("<I", h.offset(h.root, ROOT, "schedule"), 0x7FFFFFFC),
        "Program.schedule lies outside",
    ),
    "vector misaligned": (
        lambda h: h.put("<I", h.offset(h.root, ROOT, "schedule"), 6),
        "Program.schedule is misaligned",
    ),
    "vector too long": (
        lambda h: h.put("<I", at_schedule(h), 0xFFFFFFFF),
        "Program.schedule lies outside",
    ),
    "two vectors in one place": (
        lambda h: h.put(
            "<I",
            h.offset(h.root, ROOT, "schedule"),
            h.target(h.root, ROOT, "warnings") - h.offset(h.root, ROOT, "schedule"),
        ),
        "Program.(schedule|warnings) and Program.(schedule|warnings) overlap",
    ),
    "a vector over its neighbour": (lambda h: h.put("<I", at_schedule(h), 40), "overlap"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_named(head: Head, name: str) -> None:
    forge, message = FORGERIES[name]
    head.read()
    forge(head)
    with pytest.raises(pef.PefError, match=message):
        head.read()


def test_numbers_of_eight_bytes_are_aligned_to_eight(head: Head) -> None:
    regions = head.target(head.root, ROOT, "regions")
    position = head.offset(regions, "Regions", "capacity")
    head.put("<I", position, head.u32(position) + 4)
    with pytest.raises(pef.PefError, match=r"Regions\.capacity is misaligned"):
        head.read()


def test_arrays_are_read_only_views(head: Head) -> None:
    schedule = head.read()["schedule"]
    assert not isinstance(schedule, dict)
    assert schedule.tolist() == [0, 1]
    assert not schedule.flags.writeable
    assert schedule.base is not None


def test_fields_of_later_versions_are_ignored(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader whose schema ends earlier reads the rest."""
    expected = head.read()
    del expected["device"]
    monkeypatch.setitem(TABLES, ROOT, TABLES[ROOT][:-1])
    found = head.read()
    assert found.keys() == expected.keys()


def test_fields_of_later_versions_may_be_absent(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader whose schema has grown reads older files, unless the field was made required."""
    for required in (False, True):
        grown = (*TABLES[ROOT], None, ("novelty", "<u4", required))
        monkeypatch.setitem(TABLES, ROOT, grown)
        if required:
            with pytest.raises(pef.PefError, match=r"Program\.novelty is missing"):
                head.read()
        else:
            assert "novelty" not in head.read()


def test_what_older_files_lack_has_the_default_of_its_class(head: Head) -> None:
    tree = head.read()
    del tree["warnings"], tree["aliases"]
    symbols = tree["symbols"]
    assert isinstance(symbols, dict)
    for name in ("declared", "pack", "parameter", "duration", "origins", "data"):
        del symbols[name]
    texts = decode_texts(table(tree, "texts"))
    program = decode(tree, texts, ())
    assert program.warnings == program.aliases == ()
    found = {(symbol.data, symbol.origins, symbol.duration) for symbol in program.symbols}
    assert found == {(None, (), pef.Duration.TRANSIENT)}
    assert program.symbols[1].name == "w"


def test_what_no_older_file_lacks_must_be_there(head: Head) -> None:
    tree = head.read()
    del table(tree, "symbols")["data"]
    with pytest.raises(pef.PefError, match="is damaged: it lacks the column data"):
        decode(tree, decode_texts(table(tree, "texts")), ())
