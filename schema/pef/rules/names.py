"""Names: what is looked up by name has one of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pef.program import Program


def names(program: Program) -> Iterator[str]:
    """Things of one kind have different names, and none is empty."""
    yield from _distinct("symbol", (symbol.name for symbol in program.symbols))
    yield from _distinct("section", (section.name for section in program.sections))
    yield from _distinct("segment", (segment.name for segment in program.segments))
    yield from _distinct("graph", (graph.name for graph in program.graphs))
    yield from _distinct("argin", (argin.name for argin in program.argins))
    yield from _distinct("alias", (alias.name for alias in program.aliases))
    for graph in program.graphs:
        for way, ports in (("input", graph.inputs), ("output", graph.outputs)):
            # One symbol may be an output twice; one name never stands for two symbols.
            once = dict.fromkeys(ports)
            yield from _distinct(f"{way} of graph '{graph.name}'", (port.name for port in once))


def _distinct(kind: str, found: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for name in found:
        if not name:
            yield f"a {kind} has no name"
        elif name in seen:
            yield f"two things have one name: {kind} '{name}'"
        seen.add(name)


RULES = (names,)
