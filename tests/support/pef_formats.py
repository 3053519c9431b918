"""What is in the golden files of the PEF format, a function for each.

Files of formats before 0.4 are written here as they were, and read as `pef.older` states them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from math import prod
from struct import pack
from typing import Any

import pef
from pef import defaults
from pef.older import stated


def as_read(make: Callable[[], pef.Program]) -> Callable[[], pef.Program]:
    """Return what makes the program with the facts that later formats state."""

    @wraps(make)
    def made() -> pef.Program:
        return stated(make(), (0, 3))

    return made


@as_read
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
            (pef.Variant(1), pef.Variant(1)),
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


@as_read
def format_0_2() -> pef.Program:
    """A training program: what 0.2 gives a meaning to.

    Two graphs over the same states; a weight without content; a pack of two parameters and one of
    their gradients; updates in place; argins; a host kernel; a reduction.
    """
    kinds, types = pef.SymbolKind, pef.SectionType

    def symbol(
        name: str, kind: pef.SymbolKind, shape: tuple[int, ...], place: tuple[int, int], **more: Any
    ) -> pef.Symbol:
        size = 4 * prod(shape) * (2 if kind is kinds.ARGIN else 1)
        number, spelling = (11, "tensor(double)") if kind is kinds.ARGIN else (1, "tensor(float)")
        return pef.Symbol(name, kind, number, shape, spelling, *place, size, **more)

    def section(
        name: str,
        kind: pef.SectionType,
        program: int | None,
        *ways: tuple[int, ...],
        in_place: tuple[tuple[int, int], ...] = (),
    ) -> pef.Section:
        variants = () if program is None else (pef.Variant(program),)
        inputs, outputs = ways
        return pef.Section(
            name, kind, variants, inputs, (), outputs, (), pef.Estimate(), in_place=in_place
        )

    def formal(offset: int, inputs: int, outputs: int) -> pef.SectionProgram:
        names = [
            tuple(f"{way}{n}" for n in range(count))
            for way, count in (("i", inputs), ("o", outputs))
        ]
        return pef.SectionProgram(pef.DataRef(0, offset, 8), names[0], (), names[1])

    lasting = {"first_call": -1, "last_call": 6}

    def kept(at: int) -> dict[str, Any]:
        return {**lasting, "data": pef.DataRef(1, at, 8)}

    symbols = (
        symbol("x", kinds.INPUT, (16,), (5, 0), first_call=-1, last_call=5),
        symbol("w", kinds.WEIGHT, (16,), (0, 0), **lasting),
        symbol("b", kinds.WEIGHT, (2,), (0, 64), **kept(0)),
        symbol("flat", kinds.WEIGHT, (18,), (0, 0), **lasting),
        symbol("average", kinds.BUFFER, (2,), (1, 0), **kept(64)),
        symbol("w__exp_avg", kinds.OPT_STATE, (16,), (2, 0), **lasting),
        symbol("sgd.lr", kinds.ARGIN, (), (3, 0), **kept(128)),
        symbol("drop.p", kinds.ARGIN, (), (3, 8), **kept(136)),
        symbol("seed", kinds.ARGIN, (), (3, 16), **kept(144)),
        symbol("mask", kinds.ACTIVATION, (16,), (6, 0), first_call=0, last_call=1),
        symbol("loss", kinds.OUTPUT, (), (7, 0), first_call=0, last_call=4),
        symbol("w__grad", kinds.GRADIENT, (16,), (4, 0), first_call=1, last_call=4),
        symbol("b__grad", kinds.GRADIENT, (2,), (4, 64), first_call=1, last_call=4),
        symbol("flat__grad", kinds.GRADIENT, (18,), (4, 0), first_call=1, last_call=4),
        symbol(
            "loss__grad",
            kinds.INPUT,
            (),
            (8, 0),
            first_call=-1,
            last_call=5,
            data=pef.DataRef(1, 152, 4),
        ),
        symbol("eval/loss", kinds.OUTPUT, (), (6, 0), first_call=5, last_call=6),
    )
    addresses = (0, 128, 192, 256, 320, 448, 512, 576, 640)
    sizes = (72, 8, 64, 24, 72, 64, 64, 4, 4)
    packs = {0: "flat", 4: "flat__grad"}
    return pef.Program(
        producer=pef.Producer("sambac", "0.1.0", "{}", "m.onnx"),
        requires=pef.Requirements((("", 23),), ("training",)),
        arch="sn40l",
        regions=(pef.Region(pef.RegionKind.HBM, 1 << 36, 644, 280, 644),),
        allocations=tuple(
            pef.Allocation(pef.RegionKind.HBM, address, size, packs.get(number, ""))
            for number, (address, size) in enumerate(zip(addresses, sizes, strict=True))
        ),
        symbols=symbols,
        programs=(
            formal(0, 5, 2),
            formal(8, 3, 2),
            formal(16, 1, 1),
            formal(24, 3, 2),
            formal(32, 3, 1),
        ),
        sections=(
            section("fwd", types.FWD, 0, (0, 1, 2, 4, 9), (10, 4), in_place=((3, 1),)),
            section("bckwd", types.BCKWD, 1, (0, 9, 14), (11, 12)),
            section("reduce", types.REDUCE, None, (11, 12), ()),
            section("norm", types.GRADNORM, 2, (13,), (13,), in_place=((0, 0),)),
            section("opt", types.OPT, 3, (3, 13, 6), (3, 5), in_place=((0, 0),)),
            section("eval", types.FWD, 4, (0, 3, 4), (15,)),
        ),
        schedule=(0, 1, 2, 3, 4, 5),
        graphs=(
            pef.NamedGraph(
                "train",
                (pef.Port("x", 0), pef.Port("loss__grad", 14)),
                (pef.Port("loss", 10),),
                0,
                5,
            ),
            pef.NamedGraph("eval", (pef.Port("x", 0),), (pef.Port("loss", 15),), 5, 1),
        ),
        segments=(
            pef.Segment(
                "programs", 40, (pef.Piece(0, b"one     two     three   four    five    "),)
            ),
            pef.Segment(
                "weights",
                156,
                (
                    pef.Piece(0, bytes(range(1, 9))),
                    pef.Piece(64, bytes(range(9, 17))),
                    pef.Piece(128, pack("<dddf", 0.1, 0.25, 7.0, 1.0)),
                ),
            ),
        ),
        argins=(
            pef.Argin("sgd.lr", 6, 0.1),
            pef.Argin("drop.p", 7, 0.25),
            pef.Argin("seed", 8, 7.0),
        ),
        host_kernels=(pef.HostKernel("dropout_mask", 0, (7, 8), (9,), '{"site": 3}'),),
        aliases=(pef.Alias("tied", 1), pef.Alias("net__w", 1, "samba")),
    )


@as_read
def format_0_2_recompute() -> pef.Program:
    """The same, with a section that may not come into one session with another."""
    program = format_0_2()
    features = (*program.requires.features, "recompute")
    return replace(program, requires=replace(program.requires, features=features))


@as_read
def format_0_2_several_models() -> pef.Program:
    """The same model under a name, beside another one that reads what it learns."""
    program = format_0_2()
    train, judge = program.graphs
    answer = replace(program.symbols[15], name="answer", first_call=6, last_call=7)
    serve = replace(program.sections[5], name="serve", outputs=(len(program.symbols),))
    place = pef.Allocation(pef.RegionKind.HBM, 1024, 64)
    region = replace(program.regions[0], used=1088, peak_live=1088)
    longer = [
        replace(symbol, last_call=7) if symbol.last_call == 6 and symbol.first_call < 0 else symbol
        for symbol in program.symbols
    ]
    longer[0] = replace(longer[0], last_call=6)
    return replace(
        program,
        requires=replace(program.requires, features=(*program.requires.features, "several_models")),
        regions=(region, *program.regions[1:]),
        allocations=(*program.allocations, place),
        symbols=(*longer, replace(answer, allocation=len(program.allocations), offset=0)),
        sections=(*program.sections, serve),
        schedule=(*program.schedule, 6),
        graphs=(
            replace(train, name="fit/train"),
            replace(judge, name="fit/eval"),
            pef.NamedGraph("serve", (pef.Port("x", 0),), (pef.Port("answer", 16),), 6, 1),
        ),
    )


@as_read
def format_0_3_argin_variants() -> pef.Program:
    """The program of 0.2 with an update that argins choose: one that keeps what another changes.

    While the rate is zero nothing is read but what is kept; while it is not, all goes on as before.
    """
    program = format_0_2()
    opt = program.sections[4]
    less = replace(program.programs[3], inputs=("i0", "", "i2"), outputs=("", "o1"))
    variants = (pef.Variant(5, zeros=(6,)), pef.Variant(3, (), (6, 7)), pef.Variant(3))
    features = (*program.requires.features, "argin_variants")
    sections = list(program.sections)
    sections[4] = replace(opt, variants=variants)
    return replace(
        program,
        requires=replace(program.requires, features=features),
        programs=(*program.programs, less),
        sections=tuple(sections),
    )


def forward(name: str, program: int, inputs: tuple[int, ...], output: int) -> pef.Section:
    """Return a section that runs a program of one output."""
    kind, variants = pef.SectionType.FWD, (pef.Variant(program),)
    return pef.Section(name, kind, variants, inputs, (), (output,), (), pef.Estimate())


@as_read
def format_0_2_weight_states() -> pef.Program:
    """Inference without weights: parameters and buffers are states.

    The parameter is absent, the buffer has its content. A default brings its shape with it.
    """
    kinds = pef.SymbolKind
    default = defaults.encode((2, 4), pack("<8f", *range(8)))

    def symbol(
        name: str, kind: pef.SymbolKind, place: int | None, data: pef.DataRef | None = None
    ) -> pef.Symbol:
        shape: tuple[int | str, ...] = ("n", 4) if place is None else (4,)
        size, first = 0 if place is None else 16, 0 if kind is kinds.OUTPUT else -1
        return pef.Symbol(name, kind, 1, shape, "tensor(float)", place, 0, size, first, 1, data)

    symbols = (
        symbol("x", kinds.INPUT, None, pef.DataRef(1, 64, len(default))),
        symbol("w", kinds.WEIGHT, 0),
        symbol("mean", kinds.BUFFER, 1, pef.DataRef(1, 0, 16)),
        symbol("y", kinds.OUTPUT, None),
    )
    return pef.Program(
        producer=pef.Producer("sambac", "0.1.0", "{}", "m.pt2"),
        requires=pef.Requirements((("", 23),), ("weight_states",)),
        arch="sn40l",
        regions=(pef.Region(pef.RegionKind.HBM, 1 << 36, 80, 80, 80),),
        allocations=(
            pef.Allocation(pef.RegionKind.HBM, 0, 16),
            pef.Allocation(pef.RegionKind.HBM, 64, 16),
        ),
        symbols=symbols,
        programs=(pef.SectionProgram(pef.DataRef(0, 0, 3), ("x", "w", "mean"), (), ("y",)),),
        sections=(forward("only", 0, (0, 1, 2), 3),),
        schedule=(0,),
        graphs=(pef.NamedGraph("main", (pef.Port("x", 0),), (pef.Port("y", 3),), 0, 1),),
        segments=(
            pef.Segment("programs", 3, (pef.Piece(0, b"one"),)),
            pef.Segment(
                "weights",
                64 + len(default),
                (pef.Piece(0, pack("<4f", 1, 2, 3, 4)), pef.Piece(64, default)),
            ),
        ),
    )


@as_read
def format_0_3() -> pef.Program:
    """What 0.2 has, on a device whose HBM is full: one tensor has spilled to DDR."""
    before = format_0_1()
    hbm, ddr = before.regions
    first, weights, last = before.allocations
    return replace(
        before,
        regions=(
            replace(hbm, bandwidth=1.53e12),
            replace(ddr, used=64, peak_live=64, bandwidth=2e11),
        ),
        allocations=(first, weights, replace(last, region=ddr.kind, address=0, spilled=True)),
    )
