"""Metadata made up at random, with digests that fit: the reader refuses or serves, nothing else."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import pef
from pef.container import METADATA_AT, head_digest, parse_header

GOLDEN = Path(__file__).parents[1] / "compat" / "format_0_1.pef"
DATA = GOLDEN.read_bytes()
HEAD = parse_header(memoryview(DATA)).head_size
DIGEST_AT = 48

EDGES = st.sampled_from([0, 1, 4, 2**15, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1])
WORD = st.one_of(EDGES, st.integers(0, 2**32 - 1), st.integers(0, HEAD)).map(
    lambda word: word.to_bytes(4, "little")
)
CHANGE = st.tuples(
    st.integers(METADATA_AT, HEAD - 16), st.one_of(WORD, st.binary(min_size=1, max_size=16))
)
COPY = st.tuples(st.integers(METADATA_AT, HEAD - 64), st.integers(METADATA_AT, HEAD - 64)).map(
    lambda pair: (pair[0], DATA[pair[1] : pair[1] + 64])
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.one_of(CHANGE, COPY), min_size=1, max_size=4))
def test_forged_metadata(changes: list[tuple[int, bytes]]) -> None:
    data = bytearray(DATA)
    for position, change in changes:
        data[position : position + len(change)] = change
    data[DIGEST_AT : DIGEST_AT + 32] = head_digest(bytes(data[:HEAD]))
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
