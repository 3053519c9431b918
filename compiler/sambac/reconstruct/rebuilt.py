"""The plans of a PEF stage by stage and with all sizes, so that planners can be asked about them.

What the file does not say is inferred (`programs`). Whether that is what the planners knew shows in
the estimates: made again from the rebuilt plans, they have to be those in the file.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from pef.errors import PefError
from pef.program import NamedGraph, Program, SectionType
from pef.symbols import RegionKind
from pef.wording import listed
from sambac.arch import Arch, arch_of
from sambac.planning.estimate import estimate_sections
from sambac.planning.plans import FusionPlan, PlannedSection, PlannedStage, SectionCost, SectionPlan
from sambac.planning.view import DataflowView

from .plans import StoredPlans, stored_plans
from .programs import Inference


@dataclass(frozen=True)
class RebuiltStage:
    """A stage of a graph, and the numbers that its sections have in the program."""

    graph: int
    plan: PlannedStage
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Rebuilt:
    """A program, its device, and what its planners must have decided.

    `homes` has the region of each value that has one.
    """

    program: Program
    arch: Arch
    plans: StoredPlans
    stages: tuple[RebuiltStage, ...]
    homes: Mapping[str, RegionKind]

    @cached_property
    def place(self) -> Mapping[int, tuple[RebuiltStage, int]]:
        """The stage of each section, and its position there, by its number in the program."""
        return {
            number: (stage, at) for stage in self.stages for at, number in enumerate(stage.numbers)
        }

    def costs(
        self,
        arch: Arch | None = None,
        homes: Mapping[str, RegionKind] | None = None,
        stages: Sequence[PlannedStage] | None = None,
    ) -> tuple[SectionCost, ...]:
        """Estimate all sections, stage by stage, with something else than what the file has."""
        return estimate_sections(
            [stage.plan for stage in self.stages] if stages is None else stages,
            arch or self.arch,
            self.homes if homes is None else homes,
            self.plans.persistent.states,
        )

    @cached_property
    def differing(self) -> tuple[int, ...]:
        """The sections whose estimate in the file is not what the rebuilt plans give."""
        numbers = [number for stage in self.stages for number in stage.numbers]
        made = zip(numbers, self.costs(), strict=True)
        sections = self.program.sections
        return tuple(n for n, cost in made if cost.estimate != sections[n].estimate)


def rebuild(program: Program) -> Rebuilt:
    """Return the plans of `program`, in which `pef.check_program` finds nothing.

    Raises `PefError` for a file that does not say for which device it was planned, or whose plans
    cannot be told.
    """
    arch = arch_of(program.arch, program.device)
    if arch is None:
        raise PefError(
            "this file does not hold the numbers of its device, as files of format 0.6 do; compile "
            "the model again"
        )
    plans, problems = stored_plans(program, Inference(program))
    if problems:
        raise PefError(f"the plans of this file cannot be told: {listed(problems)}")
    return Rebuilt(program, arch, plans, tuple(_stages(program, plans)), _homes(program, plans))


def _homes(program: Program, plans: StoredPlans) -> dict[str, RegionKind]:
    regions = {
        symbol.name: program.allocations[symbol.allocation].region
        for symbol in program.symbols
        if symbol.allocation is not None
    }
    symbol = plans.persistent.symbol
    return {name: regions[symbol(name)] for name in plans.view.values if symbol(name) in regions}


def _stages(program: Program, plans: StoredPlans) -> Iterator[RebuiltStage]:
    """Yield the stages of each graph: sections of one type that were planned together."""
    for number, graph in enumerate(program.graphs):
        for numbers in _stretches(program, graph):
            yield RebuiltStage(number, _stage(program, plans, numbers), numbers)


def _stretches(program: Program, graph: NamedGraph) -> Iterator[tuple[int, ...]]:
    """Yield the sections of each stage of a graph, in the order in which they first run."""
    first: dict[int, int] = {}
    for call in range(graph.first_call, graph.first_call + graph.calls):
        first.setdefault(program.schedule[call], call)

    def stage(section: int) -> tuple[SectionType, int]:
        return program.sections[section].type, bisect_right(graph.stage_calls, first[section])

    return (tuple(found) for _, found in groupby(first, stage))


def _stage(program: Program, plans: StoredPlans, numbers: Sequence[int]) -> PlannedStage:
    live_sets = tuple(plans.live_sets[number] for number in numbers)
    planned = [plans.sections.sections[number] for number in numbers]
    groups = [plans.fusion.groups[group] for section in planned for group in section.groups]
    sections, first = [], 0
    for section in planned:
        last = first + len(section.groups)
        sections.append(PlannedSection(section.name, section.type, tuple(range(first, last))))
        first = last
    plan = SectionPlan(tuple(sections), tuple(range(len(sections))), traffic=0, lower_bound=0)
    kind = program.sections[numbers[0]].type
    names = [name for sets in live_sets for name in sets.ops]
    if kind is SectionType.REDUCE:
        names = []
    view = _view(plans.view, names, [name for sets in live_sets for name in sets.live_in])
    return PlannedStage(view, FusionPlan(tuple(groups)), plan, live_sets)


def _view(whole: DataflowView, names: Sequence[str], read: Sequence[str]) -> DataflowView:
    """Return what a stage sees of the `whole` that has these operators."""
    ops = {name: whole.ops[name] for name in names}
    return whole.part(
        ops, lambda value: not ops.keys() >= set(whole.consumers.get(value, ())), read
    )
