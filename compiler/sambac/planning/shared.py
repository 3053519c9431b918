"""Regions of memory that inputs and outputs share where the user asks for it.

What one graph puts out to a region is what another graph reads there, without a transfer: the
hidden state between an encoder and a decoder, or a cache that a graph reads and writes anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pef.graphs import AmbiguousNameError, Namespace
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.facts import Pack
from sambac.planning.plans import NamedModel

from .view import ValueFacts, ValueRole

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
        found = dict.fromkeys(_symbols(name, ports, problems))
        members.setdefault(region, {}).update(found)
    for region, symbols in members.items():
        problems += _problems(region, tuple(symbols), graphs, values)
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


def _symbols(name: str, ports: Namespace[str], problems: list[str]) -> tuple[str, ...]:
    """Return what `name` means; add to `problems` why it means nothing, or several things."""
    try:
        symbols = ports.find(name)
    except AmbiguousNameError as error:
        problems.append(str(error))
        return ()
    if not symbols:
        full = [port for port in ports.known if "." in port]
        shown, hint = listed(full, _NAMES_SHOWN, ", "), did_you_mean(name, ports.known)
        problems.append(f"there is no input or output '{name}'{hint}; there are {shown}")
    return symbols


def _problems(
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
    if any(fact.nbytes is None for fact in facts):
        return [f"region '{region}' has members whose size is known only at run time"]
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
