"""What limits a program as a whole, how near it is to lower bounds, and what would help most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from pef.program import GraphRole, NamedGraph, Program, SectionType
from pef.symbols import Duration
from pef.text import human_bytes, plural
from sambac.planning.estimate import limits
from sambac.planning.resources import limits_of, value_use
from sambac.planning.sections import fewest_sections, lower_bound, traffic_of
from sambac.planning.view import contracted
from sambac.reconstruct.rebuilt import Rebuilt

from .changes import change_fact, everything_near, helping, spills
from .cuts import option
from .facts import Fact, quoted, seconds, share
from .times import called

_TIME = "What its time is made of"
_SLOWEST = "What takes longest"
_HELP = "What would help most (modelled, one thing changed at a time)"
_MEMORY = "What its memory is taken by"
_SHOWN = 3
_CHANGES = 6


def whole_facts(rebuilt: Rebuilt) -> Iterator[Fact]:
    """Yield what there is to say about the whole program; of several graphs, about the first."""
    program = rebuilt.program
    graph, *others = program.graphs
    calls = calls_of(program, graph)
    total = _total(program, calls)
    yield from _terms(program, graph, calls, total)
    for other in others:
        took = _total(program, calls_of(program, other))
        yield Fact(
            _TIME,
            f"Graph {quoted(other.name)}, beside it, takes {seconds(took)} in "
            f"{plural(other.calls, 'call')}; graph:{other.name} explains it.",
            {"graph": other.name, "seconds": took, "calls": other.calls},
        )
    yield from _limits(rebuilt, calls, total)
    yield from bound_facts(rebuilt, 0)
    yield from _memory(rebuilt)


def graph_facts(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield what limits one graph, and what would help most."""
    program = rebuilt.program
    graph = program.graphs[number]
    calls = calls_of(program, graph)
    total = _total(program, calls)
    yield from _terms(program, graph, calls, total)
    yield from _limits(rebuilt, calls, total)
    yield from bound_facts(rebuilt, number)


def _limits(rebuilt: Rebuilt, calls: Sequence[int], total: float) -> Iterator[Fact]:
    yield from _slowest(rebuilt.program, calls, total)
    for change in helping(rebuilt, calls, total)[:_CHANGES]:
        yield change_fact(_HELP, change, total)


def calls_of(program: Program, graph: NamedGraph) -> Sequence[int]:
    """Return the sections of a graph in the order of its calls."""
    return program.schedule[graph.first_call : graph.first_call + graph.calls]


def _total(program: Program, calls: Sequence[int]) -> float:
    return sum(program.sections[number].estimate.latency for number in calls)


def _terms(
    program: Program, graph: NamedGraph, calls: Sequence[int], total: float
) -> Iterator[Fact]:
    sums: Counter[str] = Counter()
    for number in calls:
        sums.update(limits(program.sections[number].estimate))
    parts = ", ".join(
        f"{name} {share(value, total)}" for name, value in sums.most_common() if value
    )
    yield Fact(
        _TIME,
        f"A run of graph {quoted(graph.name)} takes {seconds(total)} on {program.arch} (modelled), "
        f"in {plural(len(calls), 'call')}: {parts}.",
        {"graph": graph.name, "seconds": total, "calls": len(calls), **sums},
    )
    if not total:
        return
    largest, value = sums.most_common(1)[0]
    longest = sum(program.sections[number].estimate.limited_by == largest for number in calls)
    yield Fact(
        _TIME,
        f"The largest part is {called(largest)}, {seconds(value)}: it limits {longest} of "
        f"{plural(len(calls), 'call')}.",
        {"largest": largest, "seconds": value, "calls": longest},
    )


def _slowest(program: Program, calls: Sequence[int], total: float) -> Iterator[Fact]:
    runs = Counter(calls)
    took = {n: count * program.sections[n].estimate.latency for n, count in runs.items()}
    for number in sorted(took, key=lambda n: -took[n])[:_SHOWN]:
        section = program.sections[number]
        if not took[number]:
            continue
        limit = section.estimate.limited_by
        part = limits(section.estimate).get(limit, 0.0)
        yield Fact(
            _SLOWEST,
            f"Section {number}, {quoted(section.name)} ({section.type.name}): "
            f"{seconds(took[number])}, {share(took[number], total)} of the time; limited by "
            f"{called(limit)}, {seconds(part)}.",
            {"section": number, "seconds": took[number], "limited_by": limit},
        )


def _memory(rebuilt: Rebuilt) -> Iterator[Fact]:
    program = rebuilt.program
    for region in program.regions:
        if region.used:
            yield Fact(
                _MEMORY,
                f"{region.kind.name}: {human_bytes(region.used)} of {human_bytes(region.capacity)} "
                f"({share(region.used, region.capacity)}), {human_bytes(region.persistent)} of "
                "them through the whole program.",
                {"region": region.kind.name, "used": region.used, "capacity": region.capacity},
            )
    if program.graphs[0].role is GraphRole.TRAIN:
        yield from _kept(rebuilt)


def _kept(rebuilt: Rebuilt) -> Iterator[Fact]:
    """Yield what is kept for the backward pass, which `--recompute` makes less, at a price.

    At most the whole forward pass is computed again. Where the main memory is full, room in it
    saves time: at most what all that spilled costs.
    """
    program = rebuilt.program
    sections = program.sections
    calls = calls_of(program, program.graphs[0])
    forward = [number for number in calls if sections[number].type is SectionType.FWD]
    written = {index for number in forward for index in sections[number].outputs}
    read = {
        index
        for section in sections
        if section.type is SectionType.BCKWD
        for index in section.inputs
    }
    kept = [
        program.symbols[index]
        for index in written
        if index in read and program.symbols[index].duration is Duration.TRANSIENT
    ]
    nbytes = sum(symbol.size for symbol in kept)
    if not kept:
        return
    again, total = _total(program, forward), _total(program, calls)
    rest = (
        "it recomputes already"
        if option(rebuilt, "recompute") is True
        else "compile with --recompute to compute some of them again instead, for at most "
        f"{seconds(again)} more a run ({share(again, total)}), what the forward pass takes"
    )
    yield Fact(
        _MEMORY,
        f"The forward pass keeps {plural(len(kept), 'value')} for the backward pass, "
        f"{human_bytes(nbytes)}; {rest}.",
        {"kept": len(kept), "bytes": nbytes, "seconds": again},
    )
    near = everything_near(rebuilt, calls) if spills(rebuilt) else None
    if near is not None and near.seconds < total:
        saved, main = total - near.seconds, rebuilt.arch.main_memory.name
        yield Fact(
            _MEMORY,
            f"{main} is full: what is not kept there makes room for what spilled, which saves at "
            f"most {seconds(saved)} a run ({share(saved, total)}).",
            {"region": main, "saved": saved},
        )


_BOUNDS = "How near it is to what no plan can go below"


def bound_facts(rebuilt: Rebuilt, number: int) -> Iterator[Fact]:
    """Yield the gaps between a graph's sections, and their traffic, and lower bounds of both.

    That of the sections asks what operators and values take of the chip, stage by stage. That of
    the traffic holds for as many sections as there are. A bound is seldom reached: it does not ask
    in which order operators can run.
    """
    limits = limits_of(rebuilt.arch)
    sections = fewest = traffic = least = 0
    for stage in rebuilt.stages:
        view = stage.plan.view
        if stage.graph != number or not view.placed:
            continue
        values = value_use(view, limits)
        parts = [stage.plan.fusion.ops_of(s.groups) for s in stage.plan.sections.sections]
        sections += len(parts)
        fewest += fewest_sections(view, limits, values)
        traffic += traffic_of(view, contracted(view.placed, parts, view.sizes))
        least += lower_bound(view, len(parts), limits, values)
    name = quoted(rebuilt.program.graphs[number].name)
    if 0 < fewest <= sections:
        yield Fact(
            _BOUNDS,
            f"Sections: graph {name} has {sections}; what it takes of the chip is in no fewer than "
            f"{fewest}, whatever is fused.",
            {"sections": sections, "least": fewest},
        )
    if traffic:
        gap = f" than {human_bytes(least)}, {share(traffic - least, traffic)} less"
        yield Fact(
            _BOUNDS,
            f"Traffic: its sections pass on {human_bytes(traffic)} through memory; of as many "
            f"sections no plan passes on less{gap if least < traffic else ''}.",
            {"bytes": traffic, "least": least},
        )
