"""Why a section ends where it does: what would be if the cut were elsewhere.

The planner's own functions say what the section would take of the chip with the first group of the
next one, what both would take together, and what would cross at every other place between them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from pef.program import SectionType
from pef.text import grouped, human_bytes, plural
from sambac.planning.plans import PlannedStage
from sambac.planning.resources import Limits, Use, limits_of, use_of, value_use
from sambac.planning.sections import traffic_of
from sambac.planning.view import contracted
from sambac.reconstruct.rebuilt import Rebuilt, RebuiltStage

from .facts import Fact, Number, quoted

_TOPIC = "Why the section ends there"


def cut_behind(rebuilt: Rebuilt, number: int) -> Fact:
    """Return why section `number` ends where it does."""
    stage, at = rebuilt.place[number]
    program = rebuilt.program
    section = program.sections[number]
    following = _following(rebuilt, number)
    if following is None:
        graph = program.graphs[stage.graph].name
        return Fact(_TOPIC, f"It is the last section of graph {quoted(graph)}.", {"cut": "end"})
    other = program.sections[following]
    if other.type is not section.type:
        return Fact(
            _TOPIC,
            f"The next section, {quoted(other.name)}, is of type {other.type.name}; a section has "
            f"one type, and this one is {section.type.name}.",
            {"cut": "type"},
        )
    level = option(rebuilt, "level")
    if level == "O0":
        return Fact(
            _TOPIC, "At O0 every operator is a section of its own.", {"cut": "level", "level": "O0"}
        )
    if rebuilt.place[following][0] is not stage:
        return _planned_apart(rebuilt, following)
    return _Border(rebuilt, stage, at).reason(quoted(other.name))


def _planned_apart(rebuilt: Rebuilt, following: int) -> Fact:
    """Return why the section `following` was planned apart from the one before it."""
    program = rebuilt.program
    name = quoted(program.sections[following].name)
    graph = program.graphs[rebuilt.place[following][0].graph]
    if following in [program.schedule[call] for call in graph.chip_calls]:
        text = f"The next chip of the pipeline begins with the next section, {name}."
        return Fact(_TOPIC, text, {"cut": "chip"})
    why, numbers = _why_apart(rebuilt, program.sections[following].type)
    return Fact(_TOPIC, f"The next section, {name}, was planned by itself: {why}.", numbers)


def _why_apart(rebuilt: Rebuilt, kind: SectionType) -> tuple[str, dict[str, Number]]:
    """Return why sections of one type were planned in parts, as far as the file says."""
    if kind is SectionType.FWD:
        asked = [
            f"{name} ask for cuts: {', '.join(quoted(str(each)) for each in found)}"
            for name in ("section_breaks", "chip_breaks")
            if isinstance(found := option(rebuilt, name), list) and found
        ]
        if asked:
            return " and ".join(asked), {"cut": "break"}
    parts = sum(section.type is SectionType.REDUCE for section in rebuilt.program.sections)
    if parts > 1 and kind is not SectionType.FWD:
        why = f"gradients are reduced in {parts} parts, and what reads them is cut likewise"
        waits = "so that it need not wait for all of them"
        return f"{why}, {waits}", {"cut": "reductions", "reductions": parts}
    return "nothing in the file says why", {"cut": "unknown"}


def option(rebuilt: Rebuilt, name: str) -> object:
    """Return an option that the program was compiled with, None if it does not say."""
    return json.loads(rebuilt.program.producer.options).get(name)


def _following(rebuilt: Rebuilt, number: int) -> int | None:
    """Return the section of the same graph that first runs after section `number`."""
    graph = rebuilt.place[number][0].graph
    order = [n for stage in rebuilt.stages if stage.graph == graph for n in stage.numbers]
    behind = order[order.index(number) + 1 :]
    return behind[0] if behind else None


class _Border:
    """The border between a section and the next one of its stage."""

    def __init__(self, rebuilt: Rebuilt, stage: RebuiltStage, at: int) -> None:
        self._rebuilt = rebuilt
        self._stage: PlannedStage = stage.plan
        self._at = at
        self._limits: Limits = limits_of(rebuilt.arch)
        self._values = value_use(stage.plan.view, self._limits)
        sections = stage.plan.sections.sections
        self._before, self._behind = sections[at].groups, sections[at + 1].groups
        self._kind = sections[at].type

    def reason(self, following: str) -> Fact:
        """Return why the cut is here; `following` is how the next section is called."""
        count = option(self._rebuilt, "sections")
        if isinstance(count, int):
            return Fact(
                _TOPIC,
                f"{plural(count, 'section')} of about equal length were asked for, cut where least "
                "crosses near their even places.",
                {"cut": "count", "sections": count},
            )
        both = self._use((*self._before, *self._behind))
        if both.within(self._limits):
            return self._asked(following)
        first = self._behind[0]
        called = quoted(self._stage.fusion.groups[first].name)
        used = self._use((*self._before, first))
        if not used.within(self._limits):
            return Fact(
                _TOPIC,
                f"With the next group, {called}, it would need {over(used, self._limits)}.",
                {"cut": "limit", "group": called, **excess(used, self._limits)},
            )
        return self._cheapest(called, following, both)

    def _cheapest(self, group: str, following: str, both: Use) -> Fact:
        """Say that this is the cheapest of the places between two sections that do not join."""
        text = (
            f"It would still hold the next group, {group}, but this section and the next one, "
            f"{following}, together need {over(both, self._limits)}."
        )
        numbers: dict[str, Number] = {
            "cut": "together",
            "group": group,
            **excess(both, self._limits),
        }
        if option(self._rebuilt, "level") == "O1":
            text += " At O1 it also ends where another module begins."
            return Fact(_TOPIC, text, numbers)
        others = self._other_places()
        if others and min(others) >= 0:
            least = min(others)
            beside = f"the next best {human_bytes(least)} more" if least else "another as much"
            text += (
                f" Of the {len(others) + 1} places to cut between them, none lets less cross, "
                f"{beside}."
            )
            numbers |= {"places": len(others) + 1, "next_best_bytes": least}
        return Fact(_TOPIC, text, numbers)

    def _other_places(self) -> list[int]:
        """Return by how many bytes the traffic changes at each other place for the cut.

        Those are left out with which the chip does not hold both sections.
        """
        view, groups = self._stage.view, self._stage.fusion.groups
        graph = contracted(view.placed, [group.ops for group in groups], view.sizes)
        stretches = [section.groups for section in self._stage.sections.sections]
        line = (*self._before, *self._behind)

        def traffic(cut: int) -> int:
            parts = [*stretches[: self._at], line[:cut], line[cut:], *stretches[self._at + 2 :]]
            return traffic_of(view, contracted(graph, parts, view.sizes))

        here = len(self._before)
        now = traffic(here)
        return [
            traffic(cut) - now
            for cut in range(1, len(line))
            if cut != here and self._fits(line[:cut]) and self._fits(line[cut:])
        ]

    def _fits(self, groups: Sequence[int]) -> bool:
        return len(groups) == 1 or self._use(groups).within(self._limits)

    def _use(self, groups: Iterable[int]) -> Use:
        ops = self._stage.fusion.ops_of(groups)
        return use_of(self._stage.view, ops, self._limits, self._values)

    def _asked(self, following: str) -> Fact:
        """Say why two sections that fit on the chip together are two all the same."""
        together = f"It fits on the chip together with the next section, {following}, but"
        if option(self._rebuilt, "level") == "O1":
            return Fact(
                _TOPIC,
                f"{together} that begins with another module; at O1 groups of one module alone "
                "share a section.",
                {"cut": "module"},
            )
        # Files before format 0.10 do not say what was planned apart.
        why, numbers = _why_apart(self._rebuilt, self._kind)
        return Fact(_TOPIC, f"{together} {why}.", numbers)


def excess(use: Use, limits: Limits) -> dict[str, int]:
    """Return what is needed and there of what there is too little of, and how much too little."""
    found: dict[str, int] = {}
    for unit, need, limit in _units(use, limits):
        if need > limit:
            word = f"{unit.lower()}s"
            found |= {f"{word}_needed": need, f"{word}_there": limit, f"{word}_over": need - limit}
    return found


def over(use: Use, limits: Limits) -> str:
    """Return what of a need the chip does not have: `1,291 of 1,280 PMUs, 11 too many`."""
    return " and ".join(
        f"{grouped(need)} of {grouped(limit)} {unit}s, {grouped(need - limit)} too many"
        for unit, need, limit in _units(use, limits)
        if need > limit
    )


def _units(use: Use, limits: Limits) -> tuple[tuple[str, int, int], ...]:
    return ("PCU", use.pcus, limits.pcus), ("PMU", use.pmus, limits.pmus)
