"""Parts of a training step that are run by themselves: what each needs, and what it gives."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import pef
from pef.states import States, states_of
from pef.text import name_text, plural
from pef.wording import listed
from sambarun import Selection
from sambarun.linking.schedule import Chosen, calls_of, resolve, select

from .feeds import Need, needs

_NAMES_SHOWN = 3


class Beside(NamedTuple):
    """What some sections of a training step give beside results, as names of symbols.

    `crossing` is what later sections of the step read; `inputs` are those of the graph that they
    read, by public name.
    """

    gradients: tuple[str, ...] = ()
    crossing: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()


def beside(program: pef.Program, chosen: Chosen) -> Beside:
    """Return what a run of `chosen` leaves beside its results; nothing but for parts of a step.

    Where the update is among them, gradients are on their way to it and may be gone at the end.
    """
    if chosen.separate or not _trains(program, chosen.graph):
        return Beside()
    calls, states = select(program, chosen), states_of(program)
    computed = _computed(program, calls, states)
    ports = {port.symbol for port in program.graphs[chosen.graph].outputs}
    late = pef.SectionType.OPT in _types(program, calls)
    found = [index for index in computed if program.symbols[index].kind is pef.SymbolKind.GRADIENT]
    others = set(calls_of(program, chosen.graph)).difference(calls)
    later = [call for call in sorted(others) if call > min(calls)]
    read = _parts((s for call in later for s in _section(program, call).inputs), states)
    crossing = [s for s in computed if s in read and s not in found and s not in ports]
    return Beside(
        () if late else tuple(program.symbols[index].name for index in found),
        tuple(program.symbols[s].name for s in crossing if s not in states.all),
        tuple(port.name for port in program.graphs[chosen.graph].inputs if port.symbol in read),
    )


def gradients_kept(program: pef.Program) -> frozenset[str]:
    """Return the names of the gradients that a program holds from run to run."""
    symbols = (program.symbols[index] for index in states_of(program).own)
    return frozenset(s.name for s in symbols if s.kind is pef.SymbolKind.GRADIENT)


def part_rows(program: pef.Program) -> Iterator[tuple[str, str, str]]:
    """Yield words that select parts of a training step, what they need, and what they give."""
    calls = [call for graph in _training(program) for call in calls_of(program, graph)]
    types = [kind.name for kind in dict.fromkeys(_types(program, calls))]
    kinds = [name for name in types if name != pef.SectionType.REDUCE.name]
    yield _row(program, ["FWD"], train=False)
    for name in kinds:
        yield _row(program, [name], train=True)
    if {"FWD", "BCKWD"}.issubset(kinds):
        yield _row(program, ["FWD", "BCKWD"], train=True)


def _training(program: pef.Program) -> list[int]:
    """Return the first graph that trains."""
    return [number for number in range(len(program.graphs)) if _trains(program, number)][:1]


def _trains(program: pef.Program, graph: int) -> bool:
    return program.graphs[graph].role is pef.GraphRole.TRAIN


def _row(program: pef.Program, types: Sequence[str], *, train: bool) -> tuple[str, str, str]:
    words = ",".join(types) + (" --train" if train and types == ["FWD"] else "")
    chosen = resolve(program, Selection(types, train=train))
    calls = select(program, chosen)
    computed = set(_computed(program, calls, states_of(program)))
    outputs = [
        port.name for port in program.graphs[chosen.graph].outputs if port.symbol in computed
    ]
    more = beside(program, chosen)
    updated = {s for call in calls for s in _section(program, call).outputs}
    gives = [
        *map(name_text, outputs),
        *_counted(len(set(more.gradients).difference(outputs)), "gradient"),
        *(f"{count} for others" for count in _counted(len(more.crossing), "tensor")),
    ]
    if updated & states_of(program).all and _trains(program, chosen.graph):
        gives.append("a new state")
    return words, _needed(needs(program, calls)), ", ".join(gives)


def _needed(found: Sequence[Need]) -> str:
    """Return what sections need, in words."""
    given = [name_text(need.name) for need in found if not need.maker]
    makers: dict[str, int] = {}
    for need in found:
        if need.maker:
            makers[need.maker] = makers.get(need.maker, 0) + 1
    made = [f"{plural(count, 'tensor')} of {maker}" for maker, count in makers.items()]
    return ", ".join([*([listed(given, _NAMES_SHOWN, ", ")] if given else []), *made]) or "-"


def _counted(count: int, what: str) -> list[str]:
    return [plural(count, what)] if count else []


def _section(program: pef.Program, call: int) -> pef.Section:
    return program.sections[program.schedule[call]]


def _types(program: pef.Program, calls: Iterable[int]) -> list[pef.SectionType]:
    return [_section(program, call).type for call in calls]


def _computed(program: pef.Program, calls: Collection[int], states: States) -> list[int]:
    """Return what `calls` and the host kernels before them compute, parts in place of packs."""
    sections = {program.schedule[call] for call in calls}
    made = [s for call in calls for s in _section(program, call).outputs]
    made += [s for row in program.host_kernels if row.section in sections for s in row.outputs]
    return [*_parts(made, states)]


def _parts(symbols: Iterable[int], states: States) -> dict[int, None]:
    return {part: None for s in symbols for part in states.packs.get(s, (s,))}
