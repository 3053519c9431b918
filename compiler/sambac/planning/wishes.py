"""Which region the user wants for which symbol: by name, or for all inputs and outputs.

A name is that of a symbol (a parameter, a gradient, optimizer state, ...) or of a public input or
output; where several graphs have an input or output of that name, it means each of them, and the
name of the graph in front (`decode.x`) means one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pef.program import RegionKind
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError

from .lifetimes import Lifetime, Residents
from .view import ValueFacts, ValueRole


@dataclass(frozen=True)
class Names:
    """What names can mean: `ports` are pairs of a public name and its symbol."""

    ports: tuple[tuple[str, str], ...]
    lifetimes: Mapping[str, Lifetime]

    def symbols(self, name: str) -> tuple[str, ...]:
        """Return the symbols that `name` means, none if it is unknown."""
        own = (name,) if name in self.lifetimes else ()
        return tuple(
            dict.fromkeys((*own, *(symbol for public, symbol in self.ports if public == name)))
        )

    @property
    def known(self) -> tuple[str, ...]:
        """Every name that means something, public ones first."""
        return tuple(dict.fromkeys((*(public for public, _ in self.ports), *self.lifetimes)))


def regions_by_hand(memory: Mapping[str, str], names: Names) -> dict[str, RegionKind]:
    """Return the region of every symbol that `memory` names."""
    return {
        symbol: RegionKind[region.upper()]
        for name, region in memory.items()
        for symbol in names.symbols(name)
    }


def check_wishes(
    memory: Mapping[str, str], names: Names, values: Mapping[str, ValueFacts], residents: Residents
) -> None:
    """Raise `CompileError` for names without meaning, or whose symbols cannot be placed alone."""
    packed = {member: pack.name for pack in residents.packs for member, _ in pack.members}
    problems = []
    chosen: dict[str, tuple[str, str]] = {}
    for name, region in memory.items():
        symbols = names.symbols(name)
        if not symbols:
            hint = did_you_mean(name, names.known)
            public = dict.fromkeys(port for port, _ in names.ports if "." not in port)
            shown = listed(tuple(public), 8, ", ")
            problems.append(
                f"there is no tensor '{name}'{hint}; inputs and outputs are {shown}; parameters "
                f"and what else crosses sections may be named too"
            )
        for symbol in symbols:
            if symbol in packed:
                problems.append(f"'{name}' is a part of '{packed[symbol]}'; place that")
            elif symbol in values and values[symbol].nbytes is None:
                problems.append(f"'{name}' has no place: its size is known only at run time")
            other, wanted = chosen.setdefault(symbol, (name, region.upper()))
            if wanted != region.upper():
                problems.append(
                    f"'{other}' and '{name}' are one tensor, wanted in {wanted} and "
                    f"{region.upper()}"
                )
    if problems:
        raise CompileError(f"memory: {listed(problems)}")


def ports_in_host(
    names: Names, values: Mapping[str, ValueFacts], residents: Residents
) -> dict[str, RegionKind]:
    """Return HOST for all inputs and outputs but those that are weights or states."""
    states = frozenset(residents.states)
    return {
        symbol: RegionKind.HOST
        for _, symbol in names.ports
        if symbol not in states and values[symbol].role is not ValueRole.WEIGHT
    }
