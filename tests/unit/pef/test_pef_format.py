"""Reading: layout, views, and one clear sentence for each thing that is no readable PEF."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import pef
from pef.container import FORMAT_VERSION, PAGE, head_digest, parse_header

Spoil = Callable[[int, bytes], None]
VERSION_AT, DIGEST_AT = 20, 48
TODAY = ".".join(map(str, FORMAT_VERSION))
NEXT = (FORMAT_VERSION[0], FORMAT_VERSION[1] + 1)
TOMORROW = ".".join(map(str, NEXT))


def test_the_layout(path: Path) -> None:
    data = path.read_bytes()
    assert data[4:8] == b"PEFB"
    assert data[8:16] == b"\x89PEF\r\n\x1a\n"
    assert struct.unpack_from("<IHH", data, 16) == (120, *FORMAT_VERSION)
    header = parse_header(memoryview(data))
    assert header.segment_base % PAGE == 0
    assert header.total_size == len(data)
    with pef.open(path) as file:
        assert file.path == str(path)
        assert file.identity == (path.stat().st_dev, path.stat().st_ino)
        for index, segment in enumerate(file.program.segments):
            start = file.file_offset(pef.DataRef(index, 0, 0))
            assert start % PAGE == 0
            assert data[start : start + segment.size] == bytes(segment.pieces[0].data)


def test_what_was_written_is_read(program: pef.Program, path: Path) -> None:
    read = pef.verify(path)
    assert replace(read, segments=()) == replace(program, segments=())
    assert [(s.name, s.size) for s in read.segments] == [("programs", 14), ("weights", 130)]
    assert bytes(read.segments[0].pieces[0].data) == b"first\0\0\0second"


def test_views_are_read_only_and_outlive_the_file(path: Path) -> None:
    file = pef.open(path)
    view = file.view(pef.DataRef(0, 8, 6))
    file.close()
    assert bytes(view) == b"second"
    assert view.readonly
    assert bytes(file.program.segments[0].pieces[0].data[:5]) == b"first"
    with pytest.raises(pef.PefError, match=r"small\.pef is closed"):
        file.bytes(pef.DataRef(0, 8, 6))


def test_a_file_without_segments(program: pef.Program, tmp_path: Path) -> None:
    bare = pef.Program(program.producer, program.requires, "sn40l", (), (), (), (), (), (), (), ())
    pef.write(bare, tmp_path / "bare.pef")
    assert pef.verify(tmp_path / "bare.pef") == bare
    data = bytearray((tmp_path / "bare.pef").read_bytes())
    data[-1] = 1
    (tmp_path / "bare.pef").write_bytes(data)
    with pytest.raises(pef.PefError, match="the padding at its end is not zero"):
        pef.verify(tmp_path / "bare.pef")


def test_leaves_are_hashed_once_from_many_threads(program: pef.Program, tmp_path: Path) -> None:
    big = replace(program, segments=(*program.segments, pef.Segment("big", 64 << 20, ())))
    pef.write(big, tmp_path / "big.pef")
    refs = [pef.DataRef(2, start << 20, 8 << 20) for start in range(0, 56, 2)]
    with pef.open(tmp_path / "big.pef") as file, ThreadPoolExecutor(4) as pool:
        assert not any(any(bytes(view[:64])) for view in pool.map(file.bytes, refs))


def test_no_leaf_is_read_twice(path: Path, spoil: Spoil) -> None:
    ref = pef.DataRef(1, 0, 130)
    with pef.open(path) as file:
        file.check(ref)
        spoil(file.file_offset(ref), b"?")
        file.check(ref)  # it was found sound before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty, not a PEF file"),
        (b"P", "is not a PEF file"),
        (b"\x08\x08onnx" * 100, "is not a PEF file"),
        (b"\x20\0\0\0PEFB" + bytes(200), "is not a PEF file"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "other.pef"
    path.write_bytes(content)
    with pytest.raises(pef.PefError) as error:
        pef.open(path)
    assert str(error.value) == f"{path} {message}"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("net.onnx", "; sambac compile makes one of it"),
        ("net.PT2", "; sambac compile makes one of it"),
        ("net.tti", "; if it is an image of PyBuda's, pybuda.TTDevice.load_image runs it"),
        ("net.zip", ""),
    ],
)
def test_other_files_say_what_makes_or_runs_them(tmp_path: Path, name: str, hint: str) -> None:
    (tmp_path / name).write_bytes(b"PK\3\4" * 100)
    with pytest.raises(pef.PefError) as error:
        pef.open(tmp_path / name)
    assert str(error.value) == f"{tmp_path / name} is not a PEF file{hint}"


def test_a_folder_a_pipe_and_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in (
        (".", "is not a PEF file but a folder"),
        ("pipe", "is not a PEF file but a device or pipe"),
        ("absent.pef", r"absent\.pef cannot be read: No such file or directory"),
    ):
        with pytest.raises(pef.PefError, match=message):
            pef.open(tmp_path / name)


def forge_version(path: Path, spoil: Spoil, version: tuple[int, int]) -> None:
    """Make the file say that another version wrote it."""
    spoil(VERSION_AT, struct.pack("<HH", *version))
    head = path.read_bytes()[: parse_size(path)]
    spoil(DIGEST_AT, head_digest(head))


def parse_size(path: Path) -> int:
    length, metadata = struct.unpack_from("<I4xQ", path.read_bytes(), 16)
    return 8 + int(length) + int(metadata)


def test_a_newer_major_version(path: Path, spoil: Spoil) -> None:
    forge_version(path, spoil, (1, 0))
    with pytest.raises(pef.PefError) as error:
        pef.open(path)
    assert str(error.value) == (
        f"{path} was written by format 1.0, this runtime reads up to {TODAY}; upgrade sambaflow"
    )


def test_a_newer_minor_version_without_new_features(
    program: pef.Program, path: Path, spoil: Spoil
) -> None:
    forge_version(path, spoil, NEXT)
    assert pef.verify(path).sections == program.sections


def test_a_newer_minor_version_with_new_features(
    program: pef.Program, path: Path, spoil: Spoil
) -> None:
    pef.write(replace(program, requires=pef.Requirements(features=("teleport",))), path)
    with pytest.raises(pef.PefError, match=r"needs 'teleport', which .* upgrade sambaflow"):
        pef.open(path)
    forge_version(path, spoil, NEXT)
    with pytest.raises(
        pef.PefError, match=f"was written by format {TOMORROW}, .* up to {TODAY}; upgrade"
    ):
        pef.open(path)


def test_damage_in_a_newer_file_says_that_it_is_newer(path: Path, spoil: Spoil) -> None:
    with pef.open(path) as file:
        size = file.header.head_size
    head = path.read_bytes()[:size]
    kinds = bytes(symbol.kind for symbol in pef.open(path).program.symbols)
    spoil(head.index(kinds), b"\x63")
    forge_version(path, spoil, NEXT)
    with pytest.raises(
        pef.PefError, match=f"by format {TOMORROW}.*unknown SymbolKind: 99"
    ) as error:
        pef.open(path)
    assert str(error.value).count(str(path)) == 1


def test_importing_is_light() -> None:
    """Running a PEF imports numpy and the standard library, and no more of it than it needs."""
    code = (
        "import sys, numpy; before = set(sys.modules); import pef;"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    unwanted = {"json", "tempfile", "flatbuffers", "ml_dtypes", "onnx", "concurrent", "subprocess"}
    assert "pef" in found.stdout.split()
    assert unwanted.isdisjoint(found.stdout.split())
