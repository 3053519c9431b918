"""The programs of all sections: cut out of the graphs, each stored once, with their variants."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pef import dtypes
from pef.container import SegmentBuilder
from pef.program import CallForm, SectionProgram, SectionType, Variant
from sambac.graph.decisions import noted_formulation
from sambac.graph.nodes import all_nodes
from sambac.planning.plans import LiveSets, PlannedGraph, ProgramPlan
from sambac.planning.view import ValueFacts
from sambac.section_program import FormalProgram, SectionModel, SectionSource
from sambac.variants.blocked import SIZES, BlockConvolutions, feature
from sambac.variants.byte_products import FEATURE, ByteProducts
from sambac.variants.chunks import PROCESSOR, UpdateInChunks, has_rows
from sambac.variants.products import WriteProducts
from sambac.variants.terms import Assumed, Terms

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
    sections have more for blocks of channels; of constants onnxruntime finds the same itself.
    Products of bytes have one for hosts that multiply unsigned and signed ones.
    Sections that update parameters have some without the terms that are zero, and that go over
    large parameters chunk by chunk. `index` are the numbers of symbols.
    """
    pool = _ProgramPool(graphs)
    given = {name for graph in plan.graphs for name in graph.span.inputs}
    choices: list[tuple[Variant, ...]] = []
    for source, graph in zip(sources, plan.graphs, strict=True):
        facts = plan.lowered.steps.get(graph.source.name)
        terms = Terms(graph.source.model, facts) if facts and facts.terms else None
        for kind, sets in _sections(graph):
            if kind is SectionType.REDUCE:
                choices.append(())
                continue
            form = _call_form(sets, plan.values, given)
            large = kind is SectionType.OPT and _reads_rows(source, sets)
            without_zeros = [
                _variant(pool.add(formal, form, requires), assumed, index)
                for assumed, section in _without_zeros(terms, source, sets, plan)
                for requires, formal in _programs_of(section, large)
            ]
            for_hosts = _for_hosts(source, sets, large, bool(plan.lowered.states))
            choices.append((*without_zeros, *pool.add_all(source.program(sets), form, for_hosts)))
    return tuple(pool.programs), choices


def _without_zeros(
    terms: Terms | None, source: SectionSource, sets: LiveSets, plan: ProgramPlan
) -> Iterable[tuple[Assumed, SectionModel]]:
    """Return a section for each way in which terms of an update can be zero, with what is so."""
    return () if terms is None else terms.programs(source, sets, _in_place(sets, plan))


def _programs_of(section: SectionModel, large: bool) -> Iterator[_Made]:
    """Yield the programs of a section with what they require, the best first."""
    if large:
        yield from _by_rows(section)
    yield (), section.program()


def _for_hosts(
    source: SectionSource, sets: LiveSets, large: bool, has_states: bool
) -> Iterator[_Made]:
    """Yield the programs for hosts with more than every host has, and what they require.

    `large`: it updates large parameters. Where weights are not states but constants, onnxruntime
    finds blocks and formulations itself.
    """
    if has_states:
        yield from _in_blocks(source, sets)
    yield from _in_bytes(source, sets)
    if large:
        yield from _by_rows(source.model(sets))
    if has_states:
        yield from _by_products(source, sets)


class _ProgramPool:
    """The programs of all sections, each stored once."""

    def __init__(self, graphs: SegmentBuilder) -> None:
        self.programs: list[SectionProgram] = []
        self._graphs = graphs
        self._known: dict[_Key, tuple[Variant, ...]] = {}
        self._numbers: dict[_Key, int] = {}

    def add(self, formal: FormalProgram, form: CallForm, requires: tuple[str, ...] = ()) -> int:
        """Return the number of a program, which is stored if it is new."""
        key = formal, form
        if key not in self._numbers:
            self._numbers[key] = len(self.programs)
            self.programs.append(_stored((requires, formal), form, self._graphs))
        return self._numbers[key]

    def add_all(
        self, formal: FormalProgram, form: CallForm, for_hosts: Iterable[_Made]
    ) -> tuple[Variant, ...]:
        """Return the programs `for_hosts` with more than every host has, and the portable one.

        Those of a portable program that is known are not asked for again.
        """
        key = formal, form
        if key not in self._known:
            made = [*for_hosts, ((), formal)]
            numbers = (self.add(item, form, requires) for requires, item in made)
            self._known[key] = tuple(map(Variant, numbers))
        return self._known[key]


def _variant(number: int, assumed: Assumed, index: Mapping[str, int]) -> Variant:
    zeros, others = (
        tuple(index[name] for name, zero in assumed.items() if zero is wanted)
        for wanted in (True, False)
    )
    return Variant(number, zeros, others)


def _in_place(sets: LiveSets, plan: ProgramPlan) -> dict[int, int]:
    """Return the positions of outputs that overwrite an input, and those of these inputs."""
    symbol = plan.persistent.symbol
    read = {symbol(name): position for position, name in enumerate(sets.live_in)}
    written = enumerate(map(symbol, sets.live_out))
    return {position: read[name] for position, name in written if name in read}


def _sections(graph: PlannedGraph) -> Iterator[tuple[SectionType, LiveSets]]:
    for stage in graph.stages:
        for section, sets in zip(stage.sections.sections, stage.live_sets, strict=True):
            yield section.type, sets


def _reads_rows(source: SectionSource, sets: LiveSets) -> bool:
    return any(has_rows(source.values[name]) for name in sets.live_in)


def _by_rows(section: SectionModel) -> Iterator[_Made]:
    """Yield the program in which large updates go row by row, and what it requires."""
    graph = section.model.clone()
    if UpdateInChunks()(graph).modified:
        yield (PROCESSOR,), replace(section, model=graph).program()


def _in_bytes(source: SectionSource, sets: LiveSets) -> Iterator[_Made]:
    """Yield the program for hosts that multiply bytes, and what it requires."""
    if ByteProducts.operators.isdisjoint(source.nodes[op].op_type for op in sets.ops):
        return
    section = source.model(sets)
    if ByteProducts()(section.model).modified:
        yield (FEATURE,), section.program()


def _in_blocks(source: SectionSource, sets: LiveSets) -> Iterator[_Made]:
    """Yield the programs for hosts with blocks of channels, and what they require."""
    if BlockConvolutions.operators.isdisjoint(source.nodes[op].op_type for op in sets.ops):
        return
    for block in SIZES:
        section = source.model(sets)
        if BlockConvolutions(block)(section.model).modified:
            WriteProducts()(section.model)
            yield (feature(block),), section.program()


def _by_products(source: SectionSource, sets: LiveSets) -> Iterator[_Made]:
    """Yield the program whose products are written as is noted on them, and what it requires."""
    nodes = all_nodes(source.nodes[op] for op in sets.ops)
    if all(noted_formulation(node) is None for node in nodes):
        return
    section = source.model(sets)
    if WriteProducts()(section.model).modified:
        yield (PROCESSOR,), section.program()


def _stored(made: _Made, form: CallForm, graphs: SegmentBuilder) -> SectionProgram:
    requires, formal = made
    return SectionProgram(
        graph=graphs.add(formal.graph),
        inputs=formal.inputs,
        weights=formal.weights,
        outputs=formal.outputs,
        call_form=form,
        requires=requires,
    )


def _call_form(sets: LiveSets, values: Mapping[str, ValueFacts], given: set[str]) -> CallForm:
    """Choose how the runtime calls a section, from the types of its live sets."""

    def bindable(name: str) -> bool:
        return values[name].dtype not in (0, dtypes.STRING)

    crossing = (*sets.live_in, *sets.live_out)
    if not all(bindable(name) for name in sets.live_in if name in given):
        return CallForm.HOST
    if any("map(" in values[name].type for name in crossing):
        return CallForm.HOST
    if not all(bindable(name) for name in crossing):
        return CallForm.VALUES
    return CallForm.BOUND
