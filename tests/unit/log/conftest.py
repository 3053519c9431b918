"""Hand-made programs, and a reader of their logs."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from log_reader import Report, read_log

from pef.container import DataRef, Piece, Segment
from pef.costs import Estimate
from pef.program import (
    FusionGroup,
    NamedGraph,
    Operator,
    Port,
    Producer,
    Program,
    Requirements,
    Section,
    SectionProgram,
    SectionType,
    Variant,
)
from pef.symbols import Allocation, Region, RegionKind, Shape, Symbol, SymbolKind


@pytest.fixture
def program_of() -> Callable[..., Program]:
    return _chain


@pytest.fixture
def parse_log() -> Callable[[str], Report]:
    return read_log


def _chain(names: list[str], shape: Shape = (1, 4)) -> Program:
    """Return a chain of sections, one for each name, from symbol 0 to symbol n + 1."""
    count = len(names)
    return Program(
        producer=Producer(
            "sambac",
            "0.1.0",
            json.dumps({"inputs": {"x y": {"shape": [1, 4]}}, "level": "O0"}),
            "my model.onnx",
            "ab" * 32,
            (("numpy", "2.4"), ("onnx", "1.23")),
        ),
        requires=Requirements((("", 17), ("com.microsoft", 1)), ("paging",)),
        arch="sn40l",
        regions=(
            Region(RegionKind.HBM, 1 << 36, 4096, 80, 4000),
            Region(RegionKind.DDR, 9, 0, 0, 0),
        ),
        allocations=(Allocation(RegionKind.HBM, 0, 80), Allocation(RegionKind.HBM, 128, 16)),
        symbols=_symbols(names, shape),
        programs=(SectionProgram(DataRef(0, 0, 64), ("i0",), ("w0",), ("o0",)),),
        sections=_chained(names),
        schedule=tuple(range(count)),
        graphs=(NamedGraph("main", (Port("x", 0),), (Port("y", count + 1),), 0, count),),
        segments=(
            Segment("programs", 64, (Piece(0, b"p" * 64),)),
            Segment("weights", 16, (Piece(0, b"w" * 16),)),
        ),
    )


def _symbols(names: list[str], shape: Shape) -> tuple[Symbol, ...]:
    count = len(names)
    symbols = [Symbol("x", SymbolKind.INPUT, 1, shape, "tensor(float)", 0, 0, 16, -1, 0)]
    life = (-1, count)
    symbols.append(
        Symbol(
            "w", SymbolKind.WEIGHT, 1, (4,), "tensor(float)", 0, 64, 16, *life, DataRef(1, 0, 16)
        )
    )
    symbols += [
        Symbol(f"{name} out", SymbolKind.ACTIVATION, 1, (1, 4), "tensor(float)", 1, 0, 16, i, i + 1)
        for i, name in enumerate(names)
    ]
    return tuple(symbols)


def _chained(names: list[str]) -> tuple[Section, ...]:
    return tuple(
        Section(
            name=name,
            type=SectionType.FWD,
            variants=(Variant(0),),
            inputs=(0 if i == 0 else i + 1,),
            weights=(1,),
            outputs=(i + 2,),
            groups=(
                FusionGroup(name, (Operator(name, "Add", 0), Operator(f"{name}/r", "Relu", 1))),
            ),
            estimate=Estimate(1.2345678e-5, 8, 2, 3, 4096, 16, 16, 16, "weights"),
        )
        for i, name in enumerate(names)
    )
