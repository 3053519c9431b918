"""Files of every format version so far are read, with the content they were given.

`format_0_1.pef` was written by the first version that had this format, from `format_0_1()` below. A
released golden file is never written again: that it keeps being read is the promise.

When the schema changes (schema/README.md says when a version number moves):

1. leave the older files, their functions and rows in `FORMATS` alone;
2. add a function `format_X_Y()` that returns a program which uses what is new, and its row;
3. write its file once: `python -c "import runpy, pef; pef.write(runpy.run_path(
   'tests/compat/test_pef_formats.py')['format_X_Y'](), 'tests/compat/format_X_Y.pef')"`;
4. commit all of it together with the schema and the generated code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import pef

FOLDER = Path(__file__).parent


def format_0_1() -> pef.Program:
    """Every table of format 0.1, with at least one row."""
    kinds = pef.SymbolKind
    tensor = "tensor(float)"
    symbols = (
        pef.Symbol("x", kinds.INPUT, 1, (2, 8), tensor, 0, 0, 64, -1, 0, pef.DataRef(1, 0, 64)),
        pef.Symbol(
            *("w", kinds.WEIGHT, 1, (2, 8), tensor, 1, 64, 64, -1, 2),
            data=pef.DataRef(1, 64, 64),
            origins=("conv.weight", "norm.scale"),
        ),
        pef.Symbol("y", kinds.ACTIVATION, 1, (2, 8), tensor, 2, 0, 64, 0, 1),
        pef.Symbol("y2", kinds.OUTPUT, 1, (2, 8), tensor, 2, 0, 64, 1, 2),
        pef.Symbol("list", kinds.OUTPUT, 7, ("n", None, 3), "seq(tensor(int64))", None, 0, 0, 1, 2),
        pef.Symbol("lr", kinds.ARGIN, 1, (), tensor, None, 0, 4, -1, 2),
    )
    sections = (
        pef.Section(
            "first",
            pef.SectionType.FWD,
            (pef.Variant(0),),
            inputs=(0,),
            weights=(1,),
            outputs=(2,),
            groups=(
                pef.FusionGroup(
                    "gemm", (pef.Operator("mm", "MatMul", 0), pef.Operator("b", "Add", 1))
                ),
                pef.FusionGroup("act", (pef.Operator("r", "Relu", 3),)),
            ),
            estimate=pef.Estimate(1.5e-6, 512, 4, 2, 1024, 64, 64, 64, "weights"),
        ),
        pef.Section(
            "second",
            pef.SectionType.OPT,
            (pef.Variant(1, pef.ProgramMode.TRAIN), pef.Variant(1)),
            inputs=(2,),
            weights=(),
            outputs=(3, 4),
            groups=(),
            estimate=pef.Estimate(),
            in_place=((0, 0),),
        ),
    )
    return pef.Program(
        producer=pef.Producer(
            "sambac", "0.1.0", '{"level":"O3"}', "m.onnx", "ab" * 32, (("onnx", "1.23"),)
        ),
        requires=pef.Requirements((("", 21), ("com.microsoft", 1))),
        arch="sn40l",
        regions=(
            pef.Region(pef.RegionKind.HBM, 1 << 36, 256, 128, 256),
            pef.Region(pef.RegionKind.DDR, 1 << 40, 0, 0, 0),
        ),
        allocations=(
            pef.Allocation(pef.RegionKind.HBM, 128, 64, "in"),
            pef.Allocation(pef.RegionKind.HBM, 0, 128),
            pef.Allocation(pef.RegionKind.HBM, 192, 64),
        ),
        symbols=symbols,
        programs=(
            pef.SectionProgram(pef.DataRef(0, 0, 5), ("a",), ("b",), ("c",)),
            pef.SectionProgram(
                pef.DataRef(0, 8, 6), ("a",), (), ("c", "d"), pef.CallForm.VALUES, ("avx512",)
            ),
        ),
        sections=sections,
        schedule=(0, 1),
        graphs=(
            pef.NamedGraph("main", (pef.Port("x", 0),), (pef.Port("y", 3), pef.Port("l", 4)), 0, 2),
        ),
        segments=(
            pef.Segment("programs", 14, (pef.Piece(0, b"first"), pef.Piece(8, b"second"))),
            pef.Segment("weights", 130, (pef.Piece(0, bytes(range(1, 131))),)),
        ),
        argins=(pef.Argin("lr", 5, 1e-3),),
        host_kernels=(pef.HostKernel("mask", 0, (0,), (), '{"site":1}'),),
        aliases=(pef.Alias("linear__weight", 1),),
        warnings=("section 'first' is small", "Grüße"),
    )


FORMATS: dict[tuple[int, int], Callable[[], pef.Program]] = {(0, 1): format_0_1}


def golden(version: tuple[int, int]) -> Path:
    return FOLDER / f"format_{version[0]}_{version[1]}.pef"


@pytest.mark.parametrize("version", FORMATS)
def test_older_files_are_read(version: tuple[int, int]) -> None:
    expected, read = FORMATS[version](), pef.verify(golden(version))
    assert replace(read, segments=()) == replace(expected, segments=())
    assert [(s.name, s.size) for s in read.segments] == [
        (s.name, s.size) for s in expected.segments
    ]
    for found, wanted in zip(read.segments, expected.segments, strict=True):
        content = bytearray(wanted.size)
        for piece in wanted.pieces:
            content[piece.offset : piece.offset + len(piece.data)] = piece.data
        assert bytes(found.pieces[0].data) == bytes(content)


@pytest.mark.parametrize("version", FORMATS)
def test_the_file_says_its_version(version: tuple[int, int]) -> None:
    with pef.open(golden(version)) as file:
        assert file.header.version == version


def test_the_current_format_has_a_golden_file(tmp_path: Path) -> None:
    """Fails when the format changes without a new version: today's bytes are the golden ones."""
    assert max(FORMATS) == pef.FORMAT_VERSION
    pef.write(FORMATS[pef.FORMAT_VERSION](), tmp_path / "today.pef")
    assert (tmp_path / "today.pef").read_bytes() == golden(pef.FORMAT_VERSION).read_bytes()
