"""In which regions users want symbols: constraints by name, and ports in the host's memory.

A constraint names a symbol (a parameter, a gradient, optimizer state, ...) or a public
input or output; where several graphs have an input or output of that name, it means each of them,
and the name of the graph in front (`decode.x`) means one. What is inside of several graphs has to
be named so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pef.graphs import AmbiguousNameError, Namespace
from pef.program import RegionKind
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError

from .plans import PersistentBuffers
from .view import ValueFacts, ValueRole


@dataclass(frozen=True)
class Names:
    """What names can mean: `space` knows their symbols, `ports` are public names and symbols."""

    space: Namespace[str]
    ports: tuple[tuple[str, str], ...]


def names_of(
    graphs: Iterable[tuple[Sequence[str], Iterable[tuple[str, str]]]],
    tensors: Iterable[tuple[str, str]],
    inner: Iterable[tuple[Sequence[str], str]],
) -> Names:
    """Return the names of `graphs`, what they are called and their ports, and of all `tensors`.

    Ports and tensors are pairs of a name and a symbol; `inner` are symbols of a graph by its names.
    """
    members = [(called, *port) for called, ports in graphs for port in ports]
    within = ((called, symbol, symbol) for called, symbol in inner)
    space = Namespace(members, tensors, inner=within)
    return Names(space, tuple((name, symbol) for _, name, symbol in members))


def regions_by_hand(memory: Mapping[str, str], names: Names) -> dict[str, RegionKind]:
    """Return the region of every symbol that `memory` names."""
    return {
        symbol: RegionKind[region.upper()]
        for name, region in memory.items()
        for symbol in names.space.find(name)
    }


def check_constraints(
    memory: Mapping[str, str],
    names: Names,
    values: Mapping[str, ValueFacts],
    persistent: PersistentBuffers,
    namesakes: Mapping[str, Sequence[str]],
) -> None:
    """Raise `CompileError` for names without meaning, or whose symbols cannot be placed alone.

    `namesakes` are symbols of further graphs by the names that they had before they were joined.
    """
    ports = {name for name, _ in names.ports}
    packed = {member: pack.name for pack in persistent.packs for member, _ in pack.members}
    problems: list[str] = []
    chosen: dict[str, tuple[str, str]] = {}
    for name, region in memory.items():
        symbols = _symbols(name, names, problems)
        if symbols and name not in ports and name in namesakes:
            others = listed([f"'{other}'" for other in namesakes[name]], separator=", ")
            problems.append(
                f"'{name}' is a tensor of several graphs ({others} too); put the name of a graph "
                f"in front"
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


def _symbols(name: str, names: Names, problems: list[str]) -> tuple[str, ...]:
    """Return what `name` means; add to `problems` why it means nothing, or several things."""
    try:
        symbols = names.space.find(name)
    except AmbiguousNameError as error:
        problems.append(str(error))
        return ()
    if not symbols:
        hint = did_you_mean(name, names.space.known)
        shown = listed(tuple(dict.fromkeys(public for public, _ in names.ports)), 8, ", ")
        problems.append(
            f"there is no tensor '{name}'{hint}; inputs and outputs are {shown}; parameters "
            f"and what else crosses sections may be named too"
        )
    return symbols


def ports_in_host(
    names: Names, values: Mapping[str, ValueFacts], persistent: PersistentBuffers
) -> dict[str, RegionKind]:
    """Return HOST for all inputs and outputs but those that are weights or states."""
    states = frozenset(persistent.states)
    return {
        symbol: RegionKind.HOST
        for _, symbol in names.ports
        if symbol not in states and values[symbol].role is not ValueRole.WEIGHT
    }
