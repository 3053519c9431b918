"""Plans: a selection of calls turned into steps, ready to run again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pef
from sambarun.device.fitted import Fitted
from sambarun.device.ledger import Writes
from sambarun.device.memory import Memory
from sambarun.errors import RunError
from sambarun.linking.schedule import Chosen, Overlaps, Unit, calls_of, select, units

from .clipping import Clipping, clipping_of
from .host_steps import Host
from .planner import CannotLinkError, Planner, Result
from .reductions import Uses, arranged, is_reduction, waiting_for, with_waits
from .steps import PlanStep


class Plan(NamedTuple):
    """Steps in order, and what they need and leave behind.

    `externals` pairs each input that no step produces with the steps that read it; states are none
    of them, `reads` has those. `writes` says what is left at planned addresses and what linked
    sections compute and keep to themselves, `valued` are the symbols left as values, `produced`
    all three together without the externals. `settles` are values that share memory with inputs of
    other runs, to be moved there at the end. `results` are the outputs of the model if the steps
    compute any, else those of the sections. `draws` and `last` tell whether the first
    forward call of a training step, and its last call, are among the calls. `clipping` is what they
    do with gradients that the graph clips.
    """

    graph: int

    steps: tuple[PlanStep, ...]
    externals: tuple[tuple[int, tuple[PlanStep, ...]], ...]
    reads: frozenset[int]
    writes: Writes
    valued: tuple[int, ...]
    results: tuple[Result, ...]
    produced: frozenset[int]
    settles: tuple[int, ...]
    draws: bool
    last: bool
    clipping: Clipping | None


def make_plan(
    fitted: Fitted, memory: Memory, host: Host, chosen: Chosen, *, link: bool, hand: bool = False
) -> Plan:
    """Create the sessions for what `chosen` selects and bind them to `memory`.

    Sections that were asked for one by one run one by one. Those of an inference program keep their
    results outside of the planned memory, where nothing overwrites them. With `hand` large results
    of a whole model are computed in memory that becomes the caller's. Raises `RunError` as
    `Image.compile` does.
    """
    program = fitted.program
    if host.reducer is None:
        chosen = chosen._replace(reduction="none")
    calls = arranged(program, select(program, chosen), chosen.reduction)
    waits = waiting_for(program, fitted.states) if chosen.overlaps else {}
    results = _results(fitted, calls, chosen)
    wanted = {symbol for _, symbol in results} | _crossing(fitted, calls, chosen.graph)
    handed = memory.for_caller if hand and chosen.everything else frozenset[int]()
    alone: set[int] = set()

    def joinable(section: int, following: int) -> bool:
        return (
            not alone.intersection((section, following))
            and waits.get(section) == waits.get(following)
            and fitted.joinable(section, following)
        )

    while link and not chosen.separate:
        parts = units(program, calls, wanted, joinable, fitted.states)
        if len(parts) == len(calls):
            break
        try:
            planner = Planner(fitted, memory, host, results, handed=handed)
            return _bind(planner, memory, parts, chosen)
        except CannotLinkError as error:
            alone.update(error.sections)
        except RunError:
            # onnxruntime folds constants across what were borders, and may then refuse a graph
            # whose parts it accepts. If the parts fail too, the error names the right one.
            break
    parts = units(program, calls, (), _never, fitted.states)
    aside = chosen.separate and _infers(program, chosen.graph)
    planner = Planner(fitted, memory, host, results, aside=aside, handed=handed)
    return _bind(planner, memory, parts, chosen)


def apart(fitted: Fitted, sections: Iterable[int]) -> tuple[Unit, ...]:
    """Return `sections` as units of their own, but for those that have no program."""
    program = fitted.program
    calls = {section: call for call, section in enumerate(program.schedule)}
    chosen = [s for s in sections if s in calls and not is_reduction(program, calls[s])]
    return tuple(
        unit for s in chosen for unit in units(program, (calls[s],), (), _never, fitted.states)
    )


def _bind(planner: Planner, memory: Memory, parts: Sequence[Unit], chosen: Chosen) -> Plan:
    """Return the plan that runs `parts`, calls of one graph."""
    program = planner.fitted.program
    uses = Uses(program, memory, Overlaps(planner.states))
    steps = with_waits(planner.steps(parts), uses, chosen.reduction, planner.under_way)
    calls = {call for part in parts for call in part.calls}
    kept = {*planner.placed, *planner.valued}
    computed = _computed(program, sorted(calls))
    hidden = tuple(s for s in computed if s not in kept and s not in planner.states.all)
    forward, last = _milestones(program, chosen.graph)
    return Plan(
        graph=chosen.graph,
        steps=steps,
        externals=tuple((symbol, tuple(found)) for symbol, found in planner.externals.items()),
        reads=frozenset(planner.reads),
        writes=Writes(tuple(planner.placed), hidden),
        valued=tuple(planner.valued),
        settles=tuple(symbol for symbol in planner.valued if symbol in planner.shared),
        produced=frozenset(kept.union(hidden)).difference(planner.externals),
        results=tuple(planner.result(name, symbol) for name, symbol in planner.results),
        draws=forward in calls,
        last=last in calls,
        clipping=clipping_of(program, chosen.graph, sorted(calls)),
    )


def _milestones(program: pef.Program, graph: int) -> tuple[int, int]:
    """Return the first forward call of a training step, and its last call; -1 if it is none."""
    if program.graphs[graph].role is not pef.GraphRole.TRAIN:
        return -1, -1
    calls = [call for call in calls_of(program, graph) if not is_reduction(program, call)]
    forward = (
        call
        for call in calls
        if program.sections[program.schedule[call]].type is pef.SectionType.FWD
    )
    return next(forward, -1), calls[-1] if calls else -1


def _infers(program: pef.Program, graph: int) -> bool:
    """Tell whether graph number `graph` is that of a model that does not train."""
    return program.graphs[graph].role is pef.GraphRole.INFERENCE


def _never(section: int, following: int) -> bool:
    """No two sections may share a session."""
    del section, following
    return False


def _results(fitted: Fitted, calls: Sequence[int], chosen: Chosen) -> tuple[tuple[str, int], ...]:
    """Return what a run of `calls` gives back, as pairs of name and symbol.

    States stay in memory, and of sections of a training step, selected by their type, that compute
    no output of the model only the gradients are results.
    """
    program = fitted.program
    ports = tuple((port.name, port.symbol) for port in program.graphs[chosen.graph].outputs)
    if chosen.everything:
        return ports
    computed = _computed(program, calls)
    named = tuple((name, symbol) for name, symbol in ports if symbol in computed)
    others = [symbol for symbol in computed if symbol not in fitted.states.all]
    if not _infers(program, chosen.graph) and not chosen.separate:
        others = [s for s in others if program.symbols[s].kind is pef.SymbolKind.GRADIENT]
        if set(others).issuperset(symbol for _, symbol in named):
            named = ()  # gradients of inputs, which are outputs, stand among the others
    return named or tuple((program.symbols[symbol].name, symbol) for symbol in others)


def _crossing(fitted: Fitted, calls: Sequence[int], graph: int) -> set[int]:
    """Return what must outlive a run of `calls` of a model that trains.

    Gradients, and what the other sections of the graph read: they may be run next.
    """
    program = fitted.image.program  # the others may run as argins are then
    if _infers(program, graph):
        return set()
    kept = {
        symbol
        for symbol in _computed(program, calls)
        if program.symbols[symbol].kind is pef.SymbolKind.GRADIENT
    }
    for call in set(calls_of(program, graph)).difference(calls):
        for symbol in program.sections[program.schedule[call]].inputs:
            kept.update((symbol, *fitted.states.packs.get(symbol, ())))
    return kept


def _computed(program: pef.Program, calls: Iterable[int]) -> tuple[int, ...]:
    """Return the symbols that the sections at `calls` compute."""
    sections = (program.sections[program.schedule[call]] for call in calls)
    return tuple(dict.fromkeys(symbol for section in sections for symbol in section.outputs))
