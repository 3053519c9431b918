"""A small program that uses every table of the format, and ways to write and spoil it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import pef

Spoil = Callable[[int, bytes], None]


@pytest.fixture
def program() -> pef.Program:
    """Two calls: y = f(x, w); then y is updated in place, and a sequence comes out."""
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


@pytest.fixture
def path(program: pef.Program, tmp_path: Path) -> Path:
    """The program as a file."""
    path = tmp_path / "small.pef"
    pef.write(program, path)
    return path


@pytest.fixture
def spoil(path: Path) -> Spoil:
    """Overwrites bytes of the file in place."""

    def overwrite(position: int, data: bytes) -> None:
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, data, position)
        finally:
            os.close(descriptor)

    return overwrite
