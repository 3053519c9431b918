"""What is in the golden files that have shared regions, a function for each."""

from __future__ import annotations

from dataclasses import replace

from pef_formats import as_read, forward

import pef


@as_read
def format_0_2_shared_regions() -> pef.Program:
    """Two graphs, of which the second reads what the first has put out into the region `cache`."""
    kinds = pef.SymbolKind

    def symbol(
        name: str, kind: pef.SymbolKind, place: int, first_call: int, last_call: int
    ) -> pef.Symbol:
        life = (first_call, last_call)
        return pef.Symbol(name, kind, 1, (4,), "tensor(float)", place, 0, 16, *life)

    return pef.Program(
        producer=pef.Producer("sambac", "0.1.0", "{}", "m.onnx"),
        requires=pef.Requirements((("", 23),), ("shared_regions",)),
        arch="sn40l",
        regions=(pef.Region(pef.RegionKind.HBM, 1 << 36, 144, 16, 144),),
        allocations=(
            pef.Allocation(pef.RegionKind.HBM, 0, 16, "cache"),
            pef.Allocation(pef.RegionKind.HBM, 64, 16),
            pef.Allocation(pef.RegionKind.HBM, 128, 16),
        ),
        symbols=(
            symbol("prefill/x", kinds.INPUT, 1, -1, 1),
            symbol("prefill/new", kinds.OUTPUT, 0, 0, 2),
            symbol("decode/x", kinds.INPUT, 1, -1, 2),
            symbol("decode/past", kinds.INPUT, 0, -1, 2),
            symbol("decode/y", kinds.OUTPUT, 2, 1, 2),
        ),
        programs=(
            pef.SectionProgram(pef.DataRef(0, 0, 3), ("x",), (), ("new",)),
            pef.SectionProgram(pef.DataRef(0, 8, 3), ("x", "past"), (), ("y",)),
        ),
        sections=(forward("prefill", 0, (0,), 1), forward("decode", 1, (2, 3), 4)),
        schedule=(0, 1),
        graphs=(
            pef.NamedGraph("prefill", (pef.Port("x", 0),), (pef.Port("new", 1),), 0, 1),
            pef.NamedGraph(
                "decode", (pef.Port("x", 2), pef.Port("past", 3)), (pef.Port("y", 4),), 1, 1
            ),
        ),
        segments=(
            pef.Segment("programs", 11, (pef.Piece(0, b"one"), pef.Piece(8, b"two"))),
            pef.Segment("weights", 0, ()),
        ),
    )


def format_0_4_shared_regions() -> pef.Program:
    """Two graphs that share a region without a name."""
    program = format_0_2_shared_regions()
    region, *others = program.allocations
    return replace(program, allocations=(replace(region, name="", shared=True), *others))
