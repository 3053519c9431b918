"""From a program and a name to an explanation."""

from __future__ import annotations

from collections.abc import Iterator

from pef.errors import PefError
from pef.program import Program
from pef.rules import check_program
from pef.text import plural
from sambac.reconstruct.rebuilt import Rebuilt, rebuild

from .changes import change_fact, hardware, worthwhile
from .cuts import cut_behind
from .facts import Explanation, Fact, quoted, share
from .names import Subject, find
from .operators import OperatorPlace, operator_facts
from .symbols import SymbolFacts
from .times import time_facts
from .whole import calls_of, graph_facts, whole_facts

_HELP = "What would help most (modelled, one thing changed at a time)"
_CHANGES = 3


def explain(program: Program, name: str | None = None) -> tuple[Explanation, ...]:
    """Explain what `name` means in `program`, or the whole of it.

    Raises `PefError` for a program that is wrong or too old to say how it was planned, and for a
    name that means nothing or several things.
    """
    if problems := check_program(program):
        raise PefError.listing("this file is damaged", problems)
    if not program.graphs:
        raise PefError("this file has no graph, so there is nothing to explain")
    subjects = None if name is None else find(program, name)
    rebuilt = rebuild(program)
    if subjects is None:
        facts = (*whole_facts(rebuilt), *_doubts(rebuilt, rebuilt.differing))
        return (Explanation("program", program.producer.source or "-", facts),)
    return tuple(_explained(rebuilt, subject) for subject in subjects)


def _explained(rebuilt: Rebuilt, subject: Subject) -> Explanation:
    return Explanation(subject.kind, subject.name, tuple(_facts(rebuilt, subject)))


def _facts(rebuilt: Rebuilt, subject: Subject) -> Iterator[Fact]:
    if isinstance(subject.at, OperatorPlace):
        yield from operator_facts(rebuilt, subject.at)
        yield from _borders(rebuilt, subject.at.section)
        yield from _doubts(rebuilt, [n for n in rebuilt.differing if n == subject.at.section])
    elif subject.kind == "graph":
        yield from graph_facts(rebuilt, subject.at)
    elif subject.kind == "symbol":
        yield from SymbolFacts(rebuilt).facts(subject.at)
    else:
        yield from _section_facts(rebuilt, subject.at)


def _section_facts(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    program = rebuilt.program
    section = program.sections[number]
    stage, at = rebuilt.place[number]
    graph = program.graphs[stage.graph]
    calls = calls_of(program, graph)
    total = sum(program.sections[n].estimate.latency for n in calls)
    runs = list(calls).count(number)
    estimate = section.estimate
    operators = sum(len(group.operators) for group in section.groups)
    yield Fact(
        "What it is",
        f"Section {number} of {len(program.sections)}, of type {section.type.name}, in graph "
        f"{quoted(graph.name)}: {plural(operators, 'operator')} in "
        f"{plural(len(section.groups), 'fusion group')}, on {plural(estimate.pcus, 'PCU')} and "
        f"{plural(estimate.pmus, 'PMU')}; {share(runs * estimate.latency, total)} of the time of a "
        "run.",
        {"section": number, "operators": operators, "groups": len(section.groups),
         "pcus": estimate.pcus, "pmus": estimate.pmus},
    )  # fmt: skip
    yield from _borders(rebuilt, number)
    yield from time_facts(rebuilt, number)
    for change in worthwhile(hardware(rebuilt, [number]), estimate.latency)[:_CHANGES]:
        yield change_fact(_HELP, change, estimate.latency)
    near = stage.numbers[max(at - 1, 0) : at + 2]
    yield from _doubts(rebuilt, [n for n in rebuilt.differing if n in near])


def _borders(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield why a section begins and ends where it does."""
    stage, at = rebuilt.place[number]
    if at:
        before = stage.numbers[at - 1]
        cut = cut_behind(rebuilt, before)
        named = quoted(rebuilt.program.sections[before].name)
        text = f"The section before, {named}, ends there: {cut.text}"
        yield Fact("Why the section begins there", text, cut.numbers)
    yield cut_behind(rebuilt, number)


def _doubts(rebuilt: Rebuilt, differing: list[int] | tuple[int, ...]) -> Iterator[Fact]:
    """Say of which sections not all is known as it was when their estimates were made."""
    if not differing:
        return
    sections = rebuilt.program.sections
    named = ", ".join(quoted(sections[n].name) for n in differing[:3])
    more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
    yield Fact(
        "How sure this is",
        f"Of {plural(len(differing), 'section')} ({named}{more}) the file does not tell all sizes "
        "inside as the compiler knew them: what they are said to need with others may be off.",
        {"sections": len(differing)},
    )
