"""The programs of all sections: cut out of the graphs, each stored once, with their variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pef import dtypes
from pef.program import CallForm, SectionProgram, SectionType, Variant
from sambac.planning.plans import Border
from sambac.planning.program_plan import PlannedGraph, ProgramPlan
from sambac.planning.view import ValueFacts
from sambac.section_program import FormalProgram, SectionSource
from sambac.variants.blocked import SIZES, blocked_program, feature
from sambac.variants.terms import Assumed, Terms

from .segments import PROGRAM_SEGMENT, SegmentBuilder

_Key = tuple[FormalProgram, CallForm]
_Made = tuple[tuple[str, ...], FormalProgram]


def section_programs(
    sources: Sequence[SectionSource],
    plan: ProgramPlan,
    graphs: SegmentBuilder,
    index: Mapping[str, int],
) -> tuple[tuple[SectionProgram, ...], list[tuple[Variant, ...]]]:
    """Return the distinct programs, and for each section its choices among them, the best first.

    The last choice is the portable program; REDUCE sections have none. Where weights are states,
    other sections have more where they are faster; of constants onnxruntime finds the same itself.
    Sections that update parameters have some without the terms that are zero. `index` are the
    numbers of symbols.
    """
    shelf = _Shelf(graphs, stateful=bool(plan.lowered.states))
    given = {name for graph in plan.graphs for name in graph.span.inputs}
    choices: list[tuple[Variant, ...]] = []
    for source, graph in zip(sources, plan.graphs, strict=True):
        facts = plan.lowered.steps.get(graph.source.name)
        terms = Terms(graph.source.model, facts) if facts and facts.terms else None
        for kind, border in _sections(graph):
            if kind is SectionType.REDUCE:
                choices.append(())
                continue
            formal, form = source.program(border), _call_form(border, plan.values, given)
            made = terms.programs(formal, border, _in_place(border, plan)) if terms else ()
            chosen = (_variant(shelf.add(item, form), assumed, index) for assumed, item in made)
            choices.append((*chosen, *shelf.for_hosts(formal, form)))
    return tuple(shelf.programs), choices


class _Shelf:
    """The programs of all sections, each stored once. `stateful` is whether weights are states."""

    def __init__(self, graphs: SegmentBuilder, *, stateful: bool) -> None:
        self.programs: list[SectionProgram] = []
        self._graphs = graphs
        self._stateful = stateful
        self._known: dict[_Key, tuple[Variant, ...]] = {}
        self._numbers: dict[_Key, int] = {}

    def add(self, formal: FormalProgram, form: CallForm, requires: tuple[str, ...] = ()) -> int:
        """Return the number of a program, which is stored if it is new."""
        key = formal, form
        if key not in self._numbers:
            self._numbers[key] = len(self.programs)
            self.programs.append(_stored((requires, formal), form, self._graphs))
        return self._numbers[key]

    def for_hosts(self, formal: FormalProgram, form: CallForm) -> tuple[Variant, ...]:
        """Return the programs for hosts with more than every host has, and the portable one."""
        key = formal, form
        if key not in self._known:
            made = [*(_for_hosts(formal) if self._stateful else ()), ((), formal)]
            numbers = (self.add(item, form, requires) for requires, item in made)
            self._known[key] = tuple(map(Variant, numbers))
        return self._known[key]


def _variant(number: int, assumed: Assumed, index: Mapping[str, int]) -> Variant:
    zeros, others = (
        tuple(index[name] for name, zero in assumed.items() if zero is wanted)
        for wanted in (True, False)
    )
    return Variant(number, zeros, others)


def _in_place(border: Border, plan: ProgramPlan) -> dict[int, int]:
    """Return the positions of outputs that overwrite an input, and those of these inputs."""
    symbol = plan.residents.symbol
    read = {symbol(name): position for position, name in enumerate(border.inputs)}
    written = enumerate(map(symbol, border.outputs))
    return {position: read[name] for position, name in written if name in read}


def _sections(graph: PlannedGraph) -> Iterator[tuple[SectionType, Border]]:
    for stage in graph.stages:
        for section, border in zip(stage.sections.sections, stage.borders, strict=True):
            yield section.type, border


def _for_hosts(portable: FormalProgram) -> Iterator[_Made]:
    """Yield the programs for hosts with more than every host has, and what they require."""
    for block in SIZES:
        blocked = blocked_program(portable, block)
        if blocked is not None:
            yield (feature(block),), blocked


def _stored(made: _Made, form: CallForm, graphs: SegmentBuilder) -> SectionProgram:
    requires, formal = made
    return SectionProgram(
        graph=graphs.add(PROGRAM_SEGMENT, formal.graph),
        inputs=formal.inputs,
        weights=formal.weights,
        outputs=formal.outputs,
        call_form=form,
        requires=requires,
    )


def _call_form(border: Border, values: Mapping[str, ValueFacts], given: set[str]) -> CallForm:
    """Choose how the runtime calls a section from the types that cross its border."""

    def bindable(name: str) -> bool:
        return values[name].dtype not in (0, dtypes.STRING)

    crossing = (*border.inputs, *border.outputs)
    if not all(bindable(name) for name in border.inputs if name in given):
        return CallForm.HOST
    if any("map(" in values[name].type for name in crossing):
        return CallForm.HOST
    if not all(bindable(name) for name in crossing):
        return CallForm.VALUES
    return CallForm.BOUND
