"""Programs of sections: self-contained, so that a PEF reads no file but itself."""

from __future__ import annotations

from collections.abc import Iterator

from pef.outside import outside_references
from pef.program import Program


def self_contained(program: Program) -> Iterator[str]:
    """No program, variants included, refers to a file."""
    for index, item in enumerate(program.programs):
        graph = program.segments[item.graph.segment].content(item.graph)
        for wish in outside_references(memoryview(graph)):
            yield f"program {index} {wish}, which no program may"


RULES = (self_contained,)
