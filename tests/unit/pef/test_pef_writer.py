"""Writing: whole or not at all, the same bytes for the same program, and nothing copied."""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pef
from pef.container import LEAF, PAGE


def with_segment(program: pef.Program, size: int, *pieces: pef.Piece) -> pef.Program:
    """The program with one more segment, named 'big'."""
    return replace(program, segments=(*program.segments, pef.Segment("big", size, pieces)))


def read_back(path: Path, ref: pef.DataRef) -> bytes:
    with pef.open(path) as file:
        return bytes(file.bytes(ref))


def test_equal_programs_give_equal_bytes(program: pef.Program, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    paths = [tmp_path / "a.pef", tmp_path / "elsewhere" / "b.pef"]
    for path in paths:
        program.save(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_bytes_do_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    code = (
        "import sys, pef\n"
        "names = tuple(f'warning {i}' for i in range(50))\n"
        "p = pef.Program(pef.Producer('t', '1', '{}'), pef.Requirements(), 'sn40l', (), (), (),"
        " (), (), (), (), (), warnings=names)\n"
        "pef.write(p, sys.argv[1])\n"
    )
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", code, str(tmp_path / seed)]
        subprocess.run(command, check=True, env=environment)
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


def test_rewriting_what_was_read_gives_the_same_file(path: Path, tmp_path: Path) -> None:
    with pef.open(path) as file:
        pef.write(file.program, tmp_path / "again.pef")
    assert (tmp_path / "again.pef").read_bytes() == path.read_bytes()


def test_a_file_may_replace_the_one_it_is_read_from(path: Path) -> None:
    before = path.read_bytes()
    with pef.open(path) as file:
        pef.write(file.program, path)
        assert bytes(file.bytes(pef.DataRef(0, 0, 5))) == b"first"
    assert path.read_bytes() == before


def test_arrays_of_any_type_are_pieces(program: pef.Program, tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    pieces = (pef.Piece(0, values.data), pef.Piece(64, np.zeros(0, np.int64).data))
    pef.write(with_segment(program, 64, *pieces), tmp_path / "a.pef")
    assert read_back(tmp_path / "a.pef", pef.DataRef(2, 0, 24)) == values.tobytes()


@pytest.mark.parametrize("size", [0, 1, LEAF - 1, LEAF, LEAF + 1])
def test_leaves_of_every_length(program: pef.Program, tmp_path: Path, size: int) -> None:
    data = np.random.default_rng(size).bytes(size)
    pef.write(with_segment(program, size, pef.Piece(0, data)), tmp_path / "a.pef")
    assert read_back(tmp_path / "a.pef", pef.DataRef(2, 0, size)) == data
    assert pef.verify(tmp_path / "a.pef").segments[2].size == size


def test_pieces_and_gaps_across_leaves(program: pef.Program, tmp_path: Path) -> None:
    one, two = b"\1" * (LEAF + 7), b"\2" * 9
    pieces = (pef.Piece(LEAF - 5, one), pef.Piece(4 * LEAF - 4, two))
    pef.write(with_segment(program, 5 * LEAF, *pieces), tmp_path / "a.pef")
    expected = bytearray(5 * LEAF)
    for piece in pieces:
        expected[piece.offset : piece.offset + len(piece.data)] = piece.data
    assert pef.verify(tmp_path / "a.pef")
    assert read_back(tmp_path / "a.pef", pef.DataRef(2, 0, 5 * LEAF)) == bytes(expected)


def test_more_than_two_gib(program: pef.Program, tmp_path: Path) -> None:
    """Gaps stay holes, so the file of 5 GiB takes a few pages, and no memory."""
    size, far = (5 << 30) + 3, (5 << 30) - 7
    path = tmp_path / "big.pef"
    pef.write(with_segment(program, size, pef.Piece(far, b"far away")), path)
    assert path.stat().st_size > size
    assert path.stat().st_blocks * 512 < 1 << 20
    with pef.open(path) as file:
        assert bytes(file.bytes(pef.DataRef(2, far, 10))) == b"far away\0\0"
        assert file.file_offset(pef.DataRef(2, far, 8)) > 1 << 32
        assert bytes(file.bytes(pef.DataRef(2, 0, 4))) == bytes(4)
    with path.open("r+b") as raw:
        raw.seek(path.stat().st_size - 1)
        raw.write(b"?")
    with pef.open(path) as file, pytest.raises(pef.PefError, match="of segment 'big' do not match"):
        file.bytes(pef.DataRef(2, far, 10))


def test_the_umask_is_heeded(program: pef.Program, tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    pef.write(program, tmp_path / "a.pef")
    mode = stat.S_IMODE((tmp_path / "a.pef").stat().st_mode)
    assert mode == stat.S_IMODE(plain.stat().st_mode)


def test_a_link_stays_a_link(program: pef.Program, tmp_path: Path) -> None:
    (tmp_path / "link.pef").symlink_to("target.pef")
    pef.write(program, tmp_path / "link.pef")
    assert (tmp_path / "link.pef").is_symlink()
    assert pef.verify(tmp_path / "target.pef")


def test_a_longest_file_name(program: pef.Program, tmp_path: Path) -> None:
    pef.write(program, tmp_path / ("n" * 251 + ".pef"))


@contextmanager
def file_size_limit(limit: int) -> Iterator[None]:
    """No file may grow beyond `limit` bytes: as near to a full disk as a test can get."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("limit", [0, 5 * PAGE, 2 * LEAF + 5])
def test_a_file_that_cannot_grow(
    program: pef.Program, path: Path, limit: int, tmp_path: Path
) -> None:
    before = path.read_bytes()
    large = with_segment(program, 3 * LEAF, pef.Piece(0, bytes(3 * LEAF)))
    with (
        file_size_limit(limit),
        pytest.raises(pef.PefError, match=r"small\.pef cannot be written: File too large"),
    ):
        pef.write(large, path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "ftruncate", "replace"])
def test_a_full_disk(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before, other = path.read_bytes(), replace(program, warnings=())
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(pef.PefError, match="cannot be written: No space left on device"):
            pef.write(other, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_an_interrupt_leaves_nothing_behind(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pef.write(program, path)
    assert list(path.parent.iterdir()) == [path]


def test_a_short_write_is_continued(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, whole = path.read_bytes(), os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, at: whole(file, data[:100], at))
        pef.write(program, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("absent/a.pef", "cannot be written: No such file or directory"),
        ("small.pef/a.pef", "cannot be written: Not a directory"),
        (".", "cannot be written: it is no regular file"),
        ("/dev/full", "cannot be written: it is no regular file"),
    ],
)
def test_targets_that_cannot_be(
    program: pef.Program, path: Path, target: str, message: str
) -> None:
    with pytest.raises(pef.PefError, match=message):
        pef.write(program, path.parent / target)
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_without_permission(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        with pytest.raises(pef.PefError, match="cannot be written: Permission denied"):
            pef.write(program, path)
        with pytest.raises(pef.PefError, match="cannot be read: Permission denied"):
            pef.open(path)


def test_numbers_beyond_their_column_are_refused(program: pef.Program, path: Path) -> None:
    before = path.read_bytes()
    sections = (replace(program.sections[0], estimate=pef.Estimate(flops=1 << 64)),)
    with pytest.raises(pef.PefError, match="written: its sections hold a number out of range"):
        pef.write(replace(program, sections=sections + program.sections[1:]), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_texts_that_are_no_unicode_are_refused(program: pef.Program, path: Path) -> None:
    with pytest.raises(pef.PefError, match=r"written: '\\udce9' is no valid text: surrogates"):
        pef.write(replace(program, warnings=("\udce9",)), path)
    assert list(path.parent.iterdir()) == [path]


def test_hashes_are_those_of_the_content(program: pef.Program, tmp_path: Path) -> None:
    """Zero leaves are not hashed one by one, but get the digest they would have."""
    pef.write(with_segment(program, LEAF), tmp_path / "a.pef")
    data = (tmp_path / "a.pef").read_bytes()
    assert hashlib.sha256(bytes(LEAF)).digest() in data
