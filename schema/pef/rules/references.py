"""Every index refers to something, and every byte range lies in its segment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from pef.container import DataRef, Segment
from pef.program import Program, Section


def symbol_references(program: Program) -> Iterator[str]:
    """A symbol's allocation and what belongs to it exist, and its data lies in a segment."""
    allocations, segments = len(program.allocations), program.segments
    symbols = len(program.symbols)
    for symbol in program.symbols:
        who = f"symbol '{symbol.name}'"
        if symbol.allocation is not None:
            yield from _indices(who, "allocation", [symbol.allocation], allocations)
        if symbol.data is not None:
            yield from _range(f"the data of {who}", symbol.data, segments)
        others = (symbol.parameter, symbol.pack)
        yield from _indices(who, "symbol", (i for i in others if i is not None), symbols)


def program_references(program: Program) -> Iterator[str]:
    """The graph of a section program lies in a segment."""
    for index, section_program in enumerate(program.programs):
        yield from _range(f"the graph of program {index}", section_program.graph, program.segments)


def section_references(program: Program) -> Iterator[str]:
    """The programs and symbols of sections exist, and so do their in-place positions."""
    symbols, programs = len(program.symbols), len(program.programs)
    for section in program.sections:
        who = f"section '{section.name}'"
        used = (*section.inputs, *section.weights, *section.outputs)
        yield from _indices(who, "symbol", used, symbols)
        chosen = [variant.program for variant in section.variants]
        yield from _indices(who, "program", chosen, programs)
        asked = [s for variant in section.variants for s in (*variant.zeros, *variant.nonzeros)]
        yield from _indices(who, "symbol", asked, symbols)
        if section.in_place:
            yield from _in_place(who, section)


def call_references(program: Program) -> Iterator[str]:
    """The schedule calls sections that exist, and graphs cover calls and symbols that exist."""
    yield from _indices("the schedule", "section", program.schedule, len(program.sections))
    for graph in program.graphs:
        who = f"graph '{graph.name}'"
        for port in (*graph.inputs, *graph.outputs):
            used = (port.symbol,) if port.gradient is None else (port.symbol, port.gradient)
            yield from _indices(who, "symbol", used, len(program.symbols))
        end = graph.first_call + graph.calls
        if graph.first_call < 0 or graph.calls < 0 or end > len(program.schedule):
            yield f"{who} covers calls {graph.first_call} to {end} of {len(program.schedule)}"


def other_references(program: Program) -> Iterator[str]:
    """Argins, aliases and host kernels refer to symbols and sections that exist."""
    symbols = len(program.symbols)
    for argin in program.argins:
        yield from _indices(f"argin '{argin.name}'", "symbol", [argin.symbol], symbols)
    for alias in program.aliases:
        yield from _indices(f"alias '{alias.name}'", "symbol", [alias.symbol], symbols)
    for kernel in program.host_kernels:
        who = f"a host kernel '{kernel.kind}'"
        yield from _indices(who, "symbol", (*kernel.inputs, *kernel.outputs), symbols)
        yield from _indices(who, "section", [kernel.section], len(program.sections))


def pieces(program: Program) -> Iterator[str]:
    """The pieces of a segment are in order, apart from each other, and inside it."""
    for segment in program.segments:
        who, end = f"segment '{segment.name}'", 0
        for piece in segment.pieces:
            if piece.offset < end:
                yield f"a piece of {who} at {piece.offset} overlaps the one before"
            end = piece.offset + memoryview(piece.data).nbytes
        if end > segment.size:
            yield f"the pieces of {who} end at {end}, its size is {segment.size}"


RULES = (
    symbol_references,
    program_references,
    section_references,
    call_references,
    other_references,
    pieces,
)


def _indices(who: str, of: str, indices: Iterable[int], count: int) -> Iterator[str]:
    for index in indices:
        if not 0 <= index < count:
            yield f"{who} refers to {of} {index} of {count}"


def _in_place(who: str, section: Section) -> Iterator[str]:
    for source, target in section.in_place:
        yield from _indices(who, "in-place input", [source], len(section.inputs))
        yield from _indices(who, "in-place output", [target], len(section.outputs))


def _range(what: str, ref: DataRef, segments: Sequence[Segment]) -> Iterator[str]:
    if not 0 <= ref.segment < len(segments):
        yield f"{what} is in segment {ref.segment} of {len(segments)}"
        return
    segment = segments[ref.segment]
    if ref.offset < 0 or ref.size < 0 or ref.offset + ref.size > segment.size:
        end = ref.offset + ref.size
        yield (
            f"{what} is said to be bytes {ref.offset} to {end} of segment '{segment.name}', "
            f"which has {segment.size}"
        )
