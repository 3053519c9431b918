"""Damage is found: truncations, and mutations of the bytes of a small file.

The long run has all of them, the short run those of every seventh byte: of each table, segment and
gap that the file has.

Opening a damaged file and touching everything in it gives an error or what was written, never
another exception, a crash or different data. With digests made to fit, so that only the structure
can give the damage away, the same holds but for the data.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import pef
from pef.columns import Pool
from pef.container import HEADER_AT, LEAF, PAGE, finish_head, head_digest, parse_header
from pef.structure import Tree

Spoil = Callable[[int, bytes], None]
DIGEST_AT = 48
MUTATIONS = (lambda byte: byte ^ 0x01, lambda byte: byte ^ 0x80, lambda byte: 255 - byte)
STEPS = pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.long)])
"""How far apart the bytes are that are mutated."""


def content(path: Path) -> tuple[pef.Program, list[bytes]]:
    """The program without its views, and every byte of its segments, checked."""
    with pef.open(path) as file:
        segments = file.program.segments
        refs = [pef.DataRef(index, 0, segment.size) for index, segment in enumerate(segments)]
        data = [bytes(file.bytes(ref)) for ref in refs]
        return dataclasses.replace(file.program, segments=()), data


def used_bytes(path: Path) -> set[int]:
    """The positions of the head and of the segments; the other bytes are padding."""
    with pef.open(path) as file:
        used = {*range(file.header.head_size)}
        for index, segment in enumerate(file.program.segments):
            start = file.file_offset(pef.DataRef(index, 0, 0))
            used |= {*range(start, start + segment.size)}
    return used


def mutations(path: Path, spoil: Spoil, used: set[int], step: int) -> Iterator[int]:
    """Mutate every `step`-th byte in turn; yields while the file is damaged.

    A byte in use is mutated in three ways, one of padding in one of them.
    """
    data = path.read_bytes()
    for position in range(0, len(data), step):
        byte = data[position]
        ways = MUTATIONS if position in used else (MUTATIONS[position % 3],)
        for mutate in ways:
            spoil(position, bytes([mutate(byte)]))
            yield position
        spoil(position, bytes([byte]))


def test_the_digest_stands_where_the_tests_think(path: Path) -> None:
    data = path.read_bytes()
    header = parse_header(memoryview(data))
    assert (
        data[DIGEST_AT : DIGEST_AT + 32] == header.digest == head_digest(data[: header.head_size])
    )


@STEPS
def test_verify_rejects_every_mutation(path: Path, spoil: Spoil, step: int) -> None:
    assert path.stat().st_size <= 16384
    for _ in mutations(path, spoil, used_bytes(path), step):
        with pytest.raises(pef.PefError):
            pef.verify(path)
    pef.verify(path)


@STEPS
def test_no_mutation_gives_other_data(path: Path, spoil: Spoil, step: int) -> None:
    original = content(path)
    used = used_bytes(path)
    for position in mutations(path, spoil, used, step):
        if position in used:
            with pytest.raises(pef.PefError):
                content(path)
        elif position % 64 == 0:  # padding, which nobody touches
            assert content(path) == original


def test_every_truncation_is_rejected(path: Path) -> None:
    for length in reversed(range(path.stat().st_size)):
        os.truncate(path, length)
        with pytest.raises(pef.PefError, match=r"is truncated|is not a PEF file|is empty"):
            pef.open(path)


def test_bytes_after_the_end_are_rejected(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")
    with pytest.raises(pef.PefError, match="has 1 bytes too many after its end"):
        pef.open(path)


def forged(head: bytearray) -> bytes:
    """The head with a digest that fits it."""
    return bytes(head[:DIGEST_AT]) + head_digest(bytes(head)) + bytes(head[DIGEST_AT + 32 :])


def survive(path: Path) -> None:
    """Open a forged file; anything but a clean error or a usable program fails the test."""
    with suppress(pef.PefError), pef.open(path) as file:
        refs = [symbol.data for symbol in file.program.symbols if symbol.data is not None]
        refs += [section_program.graph for section_program in file.program.programs]
        for ref in refs:
            assert len(file.view(ref)) == ref.size
        pef.check_program(file.program)


@STEPS
def test_forged_metadata_never_crash_the_reader(path: Path, spoil: Spoil, step: int) -> None:
    with pef.open(path) as file:
        head = bytearray(path.read_bytes()[: file.header.head_size])
    for position in range(HEADER_AT + 32, len(head), step):
        original = head[position]
        for mutate in MUTATIONS:
            head[position] = mutate(original)
            spoil(0, forged(head))
            survive(path)
        head[position] = original


@pytest.mark.parametrize("word", [0, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF])
def test_forged_words_never_crash_the_reader(path: Path, spoil: Spoil, word: int) -> None:
    with pef.open(path) as file:
        head = bytearray(path.read_bytes()[: file.header.head_size])
    for position in range(128, len(head) - 3, 4):
        original = head[position : position + 4]
        head[position : position + 4] = word.to_bytes(4, "little")
        spoil(0, forged(head))
        survive(path)
        head[position : position + 4] = original


def test_damage_is_reported_with_its_place(path: Path, spoil: Spoil) -> None:
    with pef.open(path) as file:
        weights = file.file_offset(pef.DataRef(1, 0, 0))
        programs = file.file_offset(pef.DataRef(0, 0, 0))
    spoil(weights + 100, b"?")
    with pef.open(path) as file:
        assert bytes(file.bytes(pef.DataRef(0, 0, 5))) == b"first"
        with pytest.raises(pef.PefError, match="bytes 0 to 130 of segment 'weights' do not match"):
            file.bytes(pef.DataRef(1, 0, 4))
    spoil(programs, b"?")
    spoil(weights - 1, b"?")
    with pytest.raises(pef.PefError) as error:
        pef.verify(path)
    assert error.value.problems == (
        "the padding before segment 'weights' is not zero",
        "bytes 0 to 14 of segment 'programs' do not match their SHA-256",
        "bytes 0 to 130 of segment 'weights' do not match their SHA-256",
    )


@pytest.mark.parametrize(
    ("position", "change", "message"),
    [
        (16, -8, "its metadata does not match"),
        (16, 1, "its header is said to have 121 bytes"),
        (24, 8, "its metadata does not match"),
        (24, PAGE, "the sizes in its header contradict each other"),
        (32, PAGE, "the sizes in its header contradict each other"),
        (32, 1, "the sizes in its header contradict each other"),
        (40, PAGE, "is truncated"),
        (40, -1, "has 1 bytes too many"),
        (40, -2 * PAGE, "the sizes in its header contradict each other"),
        (100, 1, "reserved bytes of its header are not zero"),
    ],
)
def test_forged_headers(path: Path, spoil: Spoil, position: int, change: int, message: str) -> None:
    with pef.open(path) as file:
        head = bytearray(path.read_bytes()[: file.header.head_size])
    value = int.from_bytes(head[position : position + 4], "little") + change
    head[position : position + 4] = value.to_bytes(4, "little")
    spoil(0, forged(head))
    with pytest.raises(pef.PefError, match=message):
        pef.open(path)


@pytest.mark.parametrize("offsets", [[0, 0], [0, 64], [0, 2 * PAGE], [PAGE, 2 * PAGE], [PAGE, 0]])
def test_segments_out_of_place(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch, offsets: list[int]
) -> None:
    monkeypatch.setattr("pef.writer._segment_offsets", lambda _: offsets)
    pef.write(program, path)
    with pytest.raises(pef.PefError, match="does not follow the one before"):
        pef.open(path)


def test_segments_that_end_elsewhere(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pef.writer.finish_head", lambda head, end: finish_head(head, end + PAGE))
    pef.write(program, path)
    os.truncate(path, path.stat().st_size + PAGE)
    with pytest.raises(pef.PefError, match="its segments do not end where the file ends"):
        pef.open(path)


def test_texts_that_leave_bytes_over(
    program: pef.Program, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def longer(pool: Pool) -> Tree:
        sizes = [len(text.encode()) for text in pool.indices]
        blob = "".join(pool.indices).encode() + b"x"
        return {"size": np.array(sizes, "<u4"), "utf8": np.frombuffer(blob, "<u1")}

    monkeypatch.setattr(Pool, "encode", longer)
    pef.write(program, path)
    with pytest.raises(pef.PefError, match="its texts do not fill their space"):
        pef.open(path)


def test_a_segment_is_named_once(program: pef.Program, tmp_path: Path) -> None:
    """Damage in many pieces of one segment is one sentence, with neighbours as one range."""
    large = replace(program.segments[1], size=9 * LEAF, pieces=(pef.Piece(0, bytes(9 * LEAF)),))
    path = tmp_path / "large.pef"
    pef.write(replace(program, segments=(program.segments[0], large)), path)
    with pef.open(path) as file:
        start = file.file_offset(pef.DataRef(1, 0, 0))
    with path.open("r+b") as opened:
        for leaf in (0, 1, 3, 8):
            opened.seek(start + leaf * LEAF + 7)
            opened.write(b"\x01")
    with pytest.raises(pef.PefError) as caught:
        pef.verify(path)
    ranges = f"0 to {2 * LEAF}, {3 * LEAF} to {4 * LEAF}, {8 * LEAF} to {9 * LEAF}"
    words = f"bytes {ranges} of segment 'weights' do not match their SHA-256"
    assert words in caught.value.problems
    assert sum("SHA-256" in problem for problem in caught.value.problems) == 1
