"""Metadata made up at random, with digests that fit: the reader refuses or serves, nothing else."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pef
from pef.container import METADATA_AT, head_digest, parse_header
from pef.states import states_of

FOLDER = Path(__file__).parents[1] / "compat"
DIGEST_AT = 48
EDGES = st.sampled_from([0, 1, 4, 2**15, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1])
Change = tuple[int, bytes]


@dataclass(frozen=True)
class Golden:
    """A file of one format version, and ways to change its metadata."""

    data: bytes
    head: int
    changes: st.SearchStrategy[list[Change]]


def golden(name: str) -> Golden:
    data = (FOLDER / name).read_bytes()
    head = parse_header(memoryview(data)).head_size
    number = st.one_of(EDGES, st.integers(0, 2**32 - 1), st.integers(0, head))
    word = number.map(lambda found: found.to_bytes(4, "little"))
    change = st.tuples(
        st.integers(METADATA_AT, head - 16), st.one_of(word, st.binary(min_size=1, max_size=16))
    )
    place = st.integers(METADATA_AT, head - 64)
    copy = st.tuples(place, place).map(lambda pair: (pair[0], data[pair[1] : pair[1] + 64]))
    return Golden(data, head, st.lists(st.one_of(change, copy), min_size=1, max_size=4))


GOLDEN = {name: golden(name) for name in ("format_0_1.pef", "format_0_2.pef")}


@pytest.mark.parametrize("name", GOLDEN)
@settings(max_examples=300, deadline=None)
@given(st.data())
def test_forged_metadata(name: str, drawn: st.DataObject) -> None:
    original = GOLDEN[name]
    data = bytearray(original.data)
    for position, change in drawn.draw(original.changes):
        data[position : position + len(change)] = change
    data[DIGEST_AT : DIGEST_AT + 32] = head_digest(bytes(data[: original.head]))
    with tempfile.NamedTemporaryFile(suffix=".pef") as file:
        file.write(data)
        file.flush()
        with suppress(pef.PefError), pef.open(file.name) as opened:
            for section_program in opened.program.programs:
                assert len(opened.view(section_program.graph)) == section_program.graph.size
            for symbol in opened.program.symbols:
                if symbol.data is not None:
                    assert len(opened.bytes(symbol.data)) == symbol.data.size
            pef.check_program(opened.program)
            states_of(opened.program)
