"""Files of every format version so far are read, with the content they were given.

`format_0_1.pef` was written by the first version that had this format, from `format_0_1()` of
`pef_formats`. A released golden file is never written again: that it keeps being read is the
promise.

When the schema changes (schema/README.md says when a version number moves):

1. leave the older files, their functions and rows in `FORMATS` alone;
2. add a function `format_X_Y()` to `tests/support/pef_formats_stated.py` that returns a program
   which uses what is new, and its row here: one file for each feature that a program may require;
3. write its file once: `PYTHONPATH=tests/support python -c "import pef, pef_formats_stated as made;
   pef.write(made.format_X_Y(), 'tests/compat/format_X_Y.pef')"`;
4. commit all of it together with the schema and the generated code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pef_formats import (
    format_0_1,
    format_0_2,
    format_0_2_recompute,
    format_0_2_several_models,
    format_0_2_weight_states,
    format_0_3,
    format_0_3_argin_variants,
)
from pef_formats_regions import format_0_2_shared_regions, format_0_4_shared_regions
from pef_formats_stated import (
    format_0_4,
    format_0_5,
    format_0_6,
    format_0_7,
    format_0_7_chips,
    format_0_8,
    format_0_9,
    format_0_10,
)

import pef
from pef.reader import KNOWN_FEATURES

FOLDER = Path(__file__).parent


# Each golden file, the version that it says it has, and what is in it.
FORMATS: dict[str, tuple[tuple[int, int], Callable[[], pef.Program]]] = {
    "format_0_1": ((0, 1), format_0_1),
    "format_0_2": ((0, 2), format_0_2),
    "format_0_2_recompute": ((0, 2), format_0_2_recompute),
    "format_0_2_several_models": ((0, 2), format_0_2_several_models),
    "format_0_2_weight_states": ((0, 2), format_0_2_weight_states),
    "format_0_2_shared_regions": ((0, 2), format_0_2_shared_regions),
    "format_0_3": ((0, 3), format_0_3),
    "format_0_3_argin_variants": ((0, 3), format_0_3_argin_variants),
    "format_0_4": ((0, 4), format_0_4),
    "format_0_4_shared_regions": ((0, 4), format_0_4_shared_regions),
    "format_0_5": ((0, 5), format_0_5),
    "format_0_6": ((0, 6), format_0_6),
    "format_0_7": ((0, 7), format_0_7),
    "format_0_7_chips": ((0, 7), format_0_7_chips),
    "format_0_8": ((0, 8), format_0_8),
    "format_0_9": ((0, 9), format_0_9),
    "format_0_10": ((0, 10), format_0_10),
}


def golden(name: str) -> Path:
    return FOLDER / f"{name}.pef"


@pytest.mark.parametrize("name", FORMATS)
def test_older_files_are_read(name: str) -> None:
    expected, read = FORMATS[name][1](), pef.verify(golden(name))
    assert replace(read, segments=()) == replace(expected, segments=())
    assert [(s.name, s.size) for s in read.segments] == [
        (s.name, s.size) for s in expected.segments
    ]
    for found, wanted in zip(read.segments, expected.segments, strict=True):
        content = bytearray(wanted.size)
        for piece in wanted.pieces:
            content[piece.offset : piece.offset + len(piece.data)] = piece.data
        assert b"".join(bytes(piece.data) for piece in found.pieces) == bytes(content)


@pytest.mark.parametrize("name", FORMATS)
def test_the_file_says_its_version(name: str) -> None:
    with pef.open(golden(name)) as file:
        assert file.header.version == FORMATS[name][0]


def test_the_current_format_has_golden_files(tmp_path: Path) -> None:
    """Fails when the format changes without a new version: today's bytes are the golden ones."""
    versions = {name: version for name, (version, _) in FORMATS.items()}
    assert max(versions.values()) == pef.FORMAT_VERSION
    for name, version in versions.items():
        if version == pef.FORMAT_VERSION:
            pef.write(FORMATS[name][1](), tmp_path / "today.pef")
            assert (tmp_path / "today.pef").read_bytes() == golden(name).read_bytes(), name


def test_every_feature_has_a_golden_file() -> None:
    features = {name for _, make in FORMATS.values() for name in make().requires.features}
    assert features == KNOWN_FEATURES


def test_every_file_has_its_row() -> None:
    assert {path.stem for path in FOLDER.glob("*.pef")} == set(FORMATS)
