"""What is written is read: random programs survive the columns, and valid ones the file."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

import pef
from pef import codec
from pef.columns import decode_texts, table
from pef.symbols import Dim

T = TypeVar("T")
U32, U64 = st.integers(0, 2**32 - 2), st.integers(0, 2**64 - 1)
CALL = st.integers(-(2**31), 2**31 - 1)
REAL = st.floats(allow_nan=False)
TEXT = st.text(max_size=8)
TEXTS = st.lists(TEXT, max_size=3).map(tuple)
INDICES = st.lists(U32, max_size=3).map(tuple)
DIM: st.SearchStrategy[Dim] = st.one_of(st.integers(0, 2**63 - 1), TEXT, st.none())
SHAPE = st.one_of(st.none(), st.lists(DIM, max_size=4).map(tuple))
REF = st.builds(pef.DataRef, U32, U64, U64)
PLACE = st.one_of(st.none(), U32)
PORTS = st.lists(st.builds(pef.Port, TEXT, U32, PLACE), max_size=3).map(tuple)


def many(strategy: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(strategy, max_size=3).map(tuple)


GROUP = st.builds(pef.FusionGroup, TEXT, many(st.builds(pef.Operator, TEXT, TEXT, U32, U64, U64)))
SECTION = st.builds(
    pef.Section,
    name=TEXT,
    type=st.sampled_from(pef.SectionType),
    variants=many(st.builds(pef.Variant, U32, many(U32), many(U32))),
    inputs=INDICES,
    weights=INDICES,
    outputs=INDICES,
    groups=many(GROUP),
    estimate=st.builds(pef.Estimate, REAL, *[U64] * 7, TEXT, REAL, REAL, REAL, REAL, REAL, REAL),
    in_place=many(st.tuples(U32, U32)),
)
SYMBOL = st.builds(
    pef.Symbol,
    name=TEXT,
    kind=st.sampled_from(pef.SymbolKind),
    dtype=st.integers(0, 255),
    shape=SHAPE,
    type=TEXT,
    allocation=st.one_of(st.none(), U32),
    offset=U64,
    size=U64,
    first_call=CALL,
    last_call=CALL,
    data=st.one_of(st.none(), REF),
    origins=TEXTS,
    duration=st.sampled_from(pef.Duration),
    parameter=PLACE,
    pack=PLACE,
)
PROGRAM = st.builds(
    pef.Program,
    producer=st.builds(pef.Producer, TEXT, TEXT, TEXT, TEXT, TEXT, many(st.tuples(TEXT, TEXT))),
    requires=st.builds(pef.Requirements, many(st.tuples(TEXT, U32)), TEXTS),
    arch=TEXT,
    regions=many(st.builds(pef.Region, st.sampled_from(pef.RegionKind), U64, U64, U64, U64)),
    allocations=many(st.builds(pef.Allocation, st.sampled_from(pef.RegionKind), U64, U64, TEXT)),
    symbols=many(SYMBOL),
    programs=many(
        st.builds(
            pef.SectionProgram, REF, TEXTS, TEXTS, TEXTS, st.sampled_from(pef.CallForm), TEXTS
        )
    ),
    sections=many(SECTION),
    schedule=INDICES,
    graphs=many(
        st.builds(
            pef.NamedGraph, TEXT, PORTS, PORTS, U32, U32, TEXT, st.sampled_from(pef.GraphRole)
        )
    ),
    segments=st.just(()),
    argins=many(st.builds(pef.Argin, TEXT, U32, REAL)),
    host_kernels=many(st.builds(pef.HostKernel, TEXT, U32, INDICES, INDICES, TEXT)),
    aliases=many(st.builds(pef.Alias, TEXT, U32)),
    warnings=TEXTS,
    device=many(st.builds(pef.DeviceNumber, TEXT, REAL, TEXT, TEXT, TEXT)),
)


@given(PROGRAM)
def test_any_program_survives_its_columns(program: pef.Program) -> None:
    tree = codec.encode(program, ())
    assert codec.decode(tree, decode_texts(table(tree, "texts")), ()) == program


@st.composite
def chains(draw: st.DrawFn) -> pef.Program:
    """Valid programs: every call reads one earlier symbol and writes one, some of known size."""
    calls = draw(st.integers(1, 8))
    names = draw(st.lists(st.text(min_size=1), min_size=calls + 1, max_size=calls + 1, unique=True))
    shapes = draw(st.lists(SHAPE, min_size=calls + 1, max_size=calls + 1))
    sources = [draw(st.integers(0, call)) for call in range(calls)]
    last = [max((c for c, s in enumerate(sources) if s == i), default=i) for i in range(calls + 1)]
    small = [draw(st.booleans()) for _ in names]
    symbols, allocations = [], []
    for index, name in enumerate(names):
        place, shape, size = None, shapes[index], 0
        if small[index]:
            place, shape, size = len(allocations), (4, 2), 32
            allocations.append(pef.Allocation(pef.RegionKind.HBM, 64 * index, 64))
        elif shape is not None:
            shape = (*shape, "n")
        kind = pef.SymbolKind.ACTIVATION if index else pef.SymbolKind.INPUT
        life = (index - 1, calls if index == calls else max(last[index], index - 1))
        symbols.append(pef.Symbol(name, kind, 1, shape, "tensor(float)", place, 0, size, *life))
    sections = tuple(
        pef.Section(
            f"s{call}",
            pef.SectionType.FWD,
            (pef.Variant(0),),
            (source,),
            (),
            (call + 1,),
            (),
            pef.Estimate(),
        )
        for call, source in enumerate(sources)
    )
    pieces = draw(st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=5))
    gaps = [draw(st.integers(0, 5000)) for _ in pieces]
    placed, end = [], 0
    for gap, data in zip(gaps, pieces, strict=True):
        placed.append(pef.Piece(end + gap, data))
        end += gap + len(data)
    used = 64 * (calls + 1)
    return pef.Program(
        producer=pef.Producer("test", "1", "{}"),
        requires=pef.Requirements((("", 21),)),
        arch="sn40l",
        regions=(pef.Region(pef.RegionKind.HBM, used, used, 0, 0),),
        allocations=tuple(allocations),
        symbols=tuple(symbols),
        programs=(pef.SectionProgram(pef.DataRef(0, 0, 1), ("a",), (), ("b",)),),
        sections=sections,
        schedule=tuple(range(calls)),
        graphs=(pef.NamedGraph("main", (pef.Port("x", 0),), (pef.Port("y", calls),), 0, calls),),
        segments=(pef.Segment("data", end + draw(st.integers(0, 100)), tuple(placed)),),
    )


@settings(max_examples=50, deadline=None)
@given(chains())
def test_a_valid_program_survives_the_file(program: pef.Program) -> None:
    assert pef.check_program(program) == []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.pef")
        pef.write(program, path)
        read = pef.verify(path)
        assert replace(read, segments=()) == replace(program, segments=())
        segment = program.segments[0]
        expected = bytearray(segment.size)
        for piece in segment.pieces:
            expected[piece.offset : piece.offset + len(piece.data)] = piece.data
        assert bytes(read.segments[0].pieces[0].data) == bytes(expected)
        pef.write(read, Path(folder, "b.pef"))
        assert Path(folder, "b.pef").read_bytes() == path.read_bytes()
