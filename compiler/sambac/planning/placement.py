"""Where users want symbols: in which region, in the host's memory, in one piece with others.

A constraint names a symbol (a parameter, a gradient, optimizer state, ...) or a public
input or output; where several graphs have an input or output of that name, it means each of them,
and the name of the graph in front (`decode.x`) means one. What is inside of several graphs has to
be named so.

Inputs and outputs share memory where the user gives them one. What one graph puts out to it is what
another graph reads there, without a transfer: the hidden state between an encoder and a decoder, or
a cache that a graph reads and writes anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pef.graphs import AmbiguousNameError, Namespace
from pef.symbols import RegionKind
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.facts import Pack
from sambac.planning.plans import NamedModel

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


_NAMES_SHOWN = 8


def shared_regions(
    wanted: Mapping[str, str],
    graphs: Sequence[NamedModel],
    values: Mapping[str, ValueFacts],
    callers: Sequence[Sequence[str]],
) -> tuple[Pack, ...]:
    """Return the regions in `wanted`, region names by those of inputs and outputs.

    An input or output is named as `graph.name`, for each of the `callers` of its graph, or by its
    name alone, which means that of every graph. Raises `CompileError` for what is unknown or cannot
    share memory.
    """
    ports = _ports(graphs, callers)
    problems: list[str] = []
    members: dict[str, dict[str, None]] = {}
    for name, region in wanted.items():
        found = dict.fromkeys(_shared_symbols(name, ports, problems))
        members.setdefault(region, {}).update(found)
    for region, symbols in members.items():
        problems += _region_problems(region, tuple(symbols), graphs, values)
    counts = Counter(symbol for symbols in members.values() for symbol in symbols)
    problems += [f"'{symbol}' is in two regions" for symbol, count in counts.items() if count > 1]
    if problems:
        raise CompileError(f"shared: {listed(problems)}")
    return tuple(
        Pack(region, values[next(iter(symbols))].nbytes or 0, tuple((s, 0) for s in symbols))
        for region, symbols in members.items()
    )


def _ports(graphs: Iterable[NamedModel], callers: Iterable[Sequence[str]]) -> Namespace[str]:
    """Return the symbols that each name of an input or output stands for."""
    return Namespace(
        (called, name, value)
        for graph, called in zip(graphs, callers, strict=True)
        for name, value in (*graph.inputs.items(), *graph.outputs.items())
    )


def _shared_symbols(name: str, ports: Namespace[str], problems: list[str]) -> tuple[str, ...]:
    """Return what `name` means; add to `problems` why it means nothing, or several things."""
    try:
        symbols = ports.find(name)
    except AmbiguousNameError as error:
        problems.append(str(error))
        return ()
    if not symbols:
        shown, hint = listed(ports.qualified, _NAMES_SHOWN, ", "), did_you_mean(name, ports.known)
        problems.append(f"there is no input or output '{name}'{hint}; there are {shown}")
    return symbols


def _region_problems(
    region: str,
    symbols: tuple[str, ...],
    graphs: Iterable[NamedModel],
    values: Mapping[str, ValueFacts],
) -> list[str]:
    """Return why `symbols` cannot share a region."""
    facts = [values[symbol] for symbol in symbols]
    fixed = [f"'{fact.name}'" for fact in facts if fact.role is ValueRole.WEIGHT]
    if fixed:
        return [f"{listed(fixed)} of region '{region}' is a constant"]
    unknown = [f"'{fact.name}'" for fact in facts if fact.nbytes is None]
    if unknown:
        names = listed(unknown, separator=", ")
        cure = "fix it, or share no region and hand results from run to run"
        return [f"the size of {names} of region '{region}' is known only at run time; {cure}"]
    problems = []
    if len({(fact.dtype, fact.nbytes) for fact in facts}) > 1:
        sizes = ", ".join(f"'{fact.name}' {fact.type} of {fact.nbytes} bytes" for fact in facts)
        problems.append(f"the members of region '{region}' differ in type or size: {sizes}")
    if region in values and region not in symbols:
        problems.append(f"region '{region}' bears the name of another tensor")
    for graph in graphs:
        for way, ports in (("inputs", graph.inputs), ("outputs", graph.outputs)):
            here = dict.fromkeys(value for value in ports.values() if value in symbols)
            if len(here) > 1:
                problems.append(f"region '{region}' has several {way} of graph '{graph.name}'")
    return problems
