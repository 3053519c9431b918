"""Regions that inputs and outputs of graphs share."""

from __future__ import annotations

from collections.abc import Iterator

from pef.program import Program
from pef.states import shared_regions


def regions(program: Program) -> Iterator[str]:
    """The members of a region are all of it, of one type, and nothing else lies there."""
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
        if len({symbol.dtype for symbol in symbols}) > 1:
            yield f"the members of {who} have different element types"


RULES = (regions,)
