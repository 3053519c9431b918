"""Regions that inputs and outputs of graphs share."""

from __future__ import annotations

from collections.abc import Iterator

from pef.program import Program, SymbolKind
from pef.states import SHARED_REGIONS, shared_regions

_MEMBERS = frozenset({SymbolKind.INPUT, SymbolKind.OUTPUT})


def regions(program: Program) -> Iterator[str]:
    """The members of a region are all of it, of one type, and nothing else lies there.

    They are inputs and outputs, of a program that says that it has regions.
    """
    if SHARED_REGIONS not in program.requires.features:
        marked = [place.name for place in program.allocations if place.shared]
        yield from (
            f"'{name}' is shared in a program that says it has no regions" for name in marked
        )
    persistent = {region.kind: region.persistent for region in program.regions}
    for number, tenants in shared_regions(program).items():
        place = program.allocations[number]
        who = f"the shared region '{place.name}'"
        if place.address + place.size > persistent.get(place.region, 0):
            yield f"{who} does not lie in the persistent part of {place.region.name}"
        symbols = [program.symbols[index] for index in tenants]
        yield from (
            f"'{symbol.name}' is not the whole of {who}"
            for symbol in symbols
            if symbol.offset or symbol.size != place.size
        )
        yield from (
            f"'{symbol.name}' of kind {symbol.kind.name} is no input or output in {who}"
            for symbol in symbols
            if symbol.kind not in _MEMBERS
        )
        if len({symbol.dtype for symbol in symbols}) > 1:
            yield f"the members of {who} have different element types"


RULES = (regions,)
