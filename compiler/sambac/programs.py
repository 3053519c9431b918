"""The programs of all sections: cut out of the graphs, each stored once, with their variants."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pef import dtypes
from pef.program import CallForm, SectionProgram, SectionType, Variant

from .planning.plans import Border
from .planning.program_plan import PlannedGraph, ProgramPlan
from .planning.view import ValueFacts
from .section_program import FormalProgram, SectionSource
from .segments import PROGRAM_SEGMENT, SegmentBuilder
from .variants.blocked import SIZES, blocked_program, feature

_Key = tuple[FormalProgram, CallForm]
_Made = tuple[tuple[str, ...], FormalProgram]


def section_programs(
    sources: Sequence[SectionSource], plan: ProgramPlan, graphs: SegmentBuilder
) -> tuple[tuple[SectionProgram, ...], list[tuple[Variant, ...]]]:
    """Return the distinct programs, and for each section its choices among them, the best first.

    The last choice is the portable program; REDUCE sections have none. Where weights are states,
    other sections have more where they are faster; of constants onnxruntime finds the same itself.
    """
    given = {name for graph in plan.graphs for name in graph.span.inputs}
    known: dict[_Key, tuple[Variant, ...]] = {}
    programs: list[SectionProgram] = []
    choices: list[tuple[Variant, ...]] = []
    stateful = bool(plan.lowered.states)
    for source, graph in zip(sources, plan.graphs, strict=True):
        for kind, border in _sections(graph):
            if kind is SectionType.REDUCE:
                choices.append(())
                continue
            formal = source.program(border)
            key = formal, _call_form(border, plan.values, given)
            if key not in known:
                made = [*(_for_hosts(formal) if stateful else ()), ((), formal)]
                first = len(programs)
                programs += (_stored(item, key[1], graphs) for item in made)
                known[key] = tuple(Variant(first + index) for index in range(len(made)))
            choices.append(known[key])
    return tuple(programs), choices


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
