"""The plans that a PEF embodies, in the form in which planners hand them to their checkers.

A value that crosses a section's border bears the name of its symbol; one that is written over
another a name of its own, as the new version of that symbol. What stays inside is not in the symbol
table: it gets a name of its own, and its size is not known unless it is inferred. A node that no
operator of a fusion group stands for is a cloned one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pef import dtypes
from pef.program import FusionGroup, Operator, Program, Section, SectionType
from pef.states import shared_regions, states_of
from pef.symbols import Symbol, SymbolKind
from pef.text import plural
from sambac.facts import Pack
from sambac.planning.liveness import lifetimes_of, symbol_graph
from sambac.planning.plans import (
    FusionPlan,
    GraphCalls,
    Group,
    LiveSets,
    PersistentBuffers,
    PlannedSection,
    SectionPlan,
)
from sambac.planning.view import DataflowView, Lifetime, OpFacts, SymbolGraph, ValueFacts, ValueRole

from .programs import Inference, InferredGraph, StoredGraph, portable_program, read_graph


@dataclass(frozen=True)
class StoredPlans:
    """What the planners must have decided for a program to be as it is."""

    view: DataflowView
    fusion: FusionPlan
    sections: SectionPlan
    live_sets: tuple[LiveSets, ...]
    spans: tuple[GraphCalls, ...]
    persistent: PersistentBuffers

    @cached_property
    def symbols(self) -> SymbolGraph:
        """Who reads and writes each symbol."""
        return symbol_graph(self.calls, self.spans, self.persistent)

    @cached_property
    def lifetimes(self) -> Mapping[str, Lifetime]:
        """The lifetime of each symbol."""
        values = self.view.values
        return lifetimes_of(self.symbols, values, self.persistent, len(self.calls))

    @cached_property
    def calls(self) -> tuple[LiveSets, ...]:
        """The live sets of the schedule."""
        return tuple(self.live_sets[section] for section in self.sections.schedule)


def stored_plans(
    program: Program, inference: Inference | None = None
) -> tuple[StoredPlans, list[str]]:
    """Return the plans of `program`, and why they cannot be told; plans with a reason are partial.

    `program` must be one in which `pef.check_program` finds nothing. With an `inference` of it,
    sizes inside sections are known too, and what operators keep on chip.
    """
    reading = _Reading(program, inference)
    live_sets = tuple(reading.section(section) for section in program.sections)
    outputs = (*_ports(program, "outputs"), *reading.updates, *reading.unread(live_sets))
    view = DataflowView(
        ops=reading.ops,
        values=reading.values,
        inputs=tuple(dict.fromkeys((*_ports(program, "inputs"), *reading.given))),
        outputs=tuple(dict.fromkeys(outputs)),
    )
    groups = [group for section in program.sections for group in section.groups]
    sections = SectionPlan(
        sections=_planned(program.sections),
        schedule=program.schedule,
        traffic=_traffic(program, view, live_sets),
        lower_bound=0,
        warnings=program.warnings,
    )
    plans = StoredPlans(
        view,
        FusionPlan(tuple(map(_group, groups))),
        sections,
        live_sets,
        tuple(_spans(program)),
        _persistent(program, reading.updates),
    )
    return plans, reading.problems


def _spans(program: Program) -> Iterator[GraphCalls]:
    symbols = program.symbols
    for graph in program.graphs:
        inputs, outputs = (
            tuple(symbols[port.symbol].name for port in ports)
            for ports in (graph.inputs, graph.outputs)
        )
        yield GraphCalls(inputs, outputs, graph.first_call, graph.calls)


def _persistent(program: Program, updates: dict[str, str]) -> PersistentBuffers:
    gradients = (s.name for s in program.symbols if s.kind is SymbolKind.GRADIENT)
    return PersistentBuffers(
        states=tuple(program.symbols[index].name for index in sorted(states_of(program).all)),
        updates=updates,
        kept=frozenset(gradients),
        packs=tuple(_packs(program)),
        shared=tuple(_regions(program)),
    )


def _packs(program: Program) -> Iterator[Pack]:
    """Yield what symbols lie inside of together, as flat vectors."""
    symbols = program.symbols
    for flat, parts in states_of(program).packs.items():
        members = tuple((symbols[part].name, symbols[part].offset) for part in parts)
        yield Pack(symbols[flat].name, symbols[flat].size, members)


def _regions(program: Program) -> Iterator[Pack]:
    """Yield the regions that inputs and outputs of graphs share."""
    for number, tenants in shared_regions(program).items():
        place = program.allocations[number]
        members = tuple((program.symbols[index].name, 0) for index in tenants)
        yield Pack(place.name, place.size, members)


class _Reading:
    """One walk over the sections that collects operators and values, every name once."""

    def __init__(self, program: Program, inference: Inference | None) -> None:
        self._program = program
        self._inference = inference
        self._graphs: dict[int, StoredGraph] = {}
        self._symbols = [symbol.name for symbol in program.symbols]
        self._op_names = {
            operator.name
            for section in program.sections
            for group in section.groups
            for operator in group.operators
        }
        self._stored = frozenset(self._symbols)
        self._latest = list(self._symbols)  # the version of each symbol that a reader finds
        self.given = tuple(_given(program))
        given = frozenset(self.given)
        self._written = {
            at for at, s in enumerate(program.symbols) if s.first_call < 0 or s.name in given
        }
        self.values = {symbol.name: _symbol_facts(symbol, given) for symbol in program.symbols}
        self.updates: dict[str, str] = {}
        self.ops: dict[str, OpFacts] = {}
        self.problems: list[str] = []

    def unread(self, live_sets: Sequence[LiveSets]) -> list[str]:
        """Return what sections write and no operator of another reads; a reduction has none."""
        read = {name for sets in live_sets if sets.ops for name in sets.live_in}
        return [name for sets in live_sets for name in sets.live_out if name not in read]

    def _version(self, symbol: int, section: Section) -> str:
        """Return the name of what `section` writes to a symbol: its own if it is the first."""
        name = self._symbols[symbol]
        if symbol in self._written:
            version = _unused(f"{name} after section '{section.name}'", self.values)
            self.values[version] = replace(
                self.values[name], name=version, role=ValueRole.ACTIVATION
            )
            self.updates[version] = self._latest[symbol]
            self._latest[symbol] = version
            return version
        self._written.add(symbol)
        return name

    def section(self, section: Section) -> LiveSets:
        """Add the nodes of `section` and return its live sets."""
        inputs, weights = (
            tuple(self._latest[index] for index in indices)
            for indices in (section.inputs, section.weights)
        )
        outputs = tuple(self._version(index, section) for index in section.outputs)
        if section.type is SectionType.REDUCE:
            return LiveSets((), inputs, weights, outputs)
        number = portable_program(self._program, section)
        if number is None:
            self.problems.append(f"section '{section.name}' has no program for every host")
            return LiveSets((), inputs, weights, outputs)
        formal = self._program.programs[number]
        names = dict(
            zip(
                (*formal.inputs, *formal.weights, *formal.outputs),
                (*inputs, *weights, *outputs),
                strict=True,
            )
        )
        inferred = None
        if self._inference is not None:
            inferred = self._inference.graph(number, section.weights)
        ops = self._nodes(section, self._graph(number), names, inferred)
        return LiveSets(ops, inputs, weights, outputs)

    def _graph(self, number: int) -> StoredGraph:
        graph = self._graphs.get(number)
        if graph is None:
            graph = self._graphs[number] = read_graph(self._program, number)
            self.problems += graph.problems
        return graph

    def _nodes(
        self,
        section: Section,
        graph: StoredGraph,
        names: dict[str, str],
        inferred: InferredGraph | None,
    ) -> tuple[str, ...]:
        """Add the nodes of a section; `names` are its values by formal name, and grows."""
        operators = self._operators(section, graph)
        found = []
        for position, node in enumerate(graph.nodes):
            operator = operators.get(position)
            if operator is None:
                name = _unused(f"node {position} of section '{section.name}'", self._op_names)
                self._op_names.add(name)
            else:
                name = operator.name
            if name in self.ops:
                self.problems.append(f"two operators are named '{name}'")
            for formal in (*node.reads, *node.makes):
                if formal not in names:
                    names[formal] = self._local(section, formal, inferred)
            self.ops[name] = OpFacts(
                name=name,
                op_type=node.op_type,
                domain=node.domain,
                inputs=tuple(dict.fromkeys(names[formal] for formal in node.reads)),
                outputs=tuple(names[formal] for formal in node.makes),
                flops=0 if operator is None else operator.flops,
                cloned=operator is None,
                section_type=section.type,
                holds=_known(inferred.holds[position] if inferred else (), names),
                keepable=_known(inferred.keepable[position] if inferred else (), names),
            )
            if operator is not None:
                self._declare(operator, self.ops[name].outputs)
            found.append(name)
        return tuple(found)

    def _declare(self, operator: Operator, outputs: tuple[str, ...]) -> None:
        """Note in which types the model has what an operator makes."""
        types = operator.declared or (0,) * len(outputs)
        if len(types) != len(outputs):
            self.problems.append(
                f"operator '{operator.name}' makes {plural(len(outputs), 'value')}, and has "
                f"{plural(len(types), 'type')} for them"
            )
            return
        for value, dtype in zip(outputs, types, strict=True):
            facts = self.values[value]
            if value in self._stored and facts.declared != dtype:
                self.problems.append(
                    f"operator '{operator.name}' makes '{value}', of type {dtype} in its model; "
                    f"its symbol says {facts.declared}"
                )
            self.values[value] = replace(facts, declared=dtype)

    def _operators(self, section: Section, graph: StoredGraph) -> dict[int, Operator]:
        """Return the operators of a section by the node they stand for."""
        operators: dict[int, Operator] = {}
        for operator in (op for group in section.groups for op in group.operators):
            who = f"operator '{operator.name}' of section '{section.name}'"
            if operator.node >= len(graph.nodes):
                count = len(graph.nodes)
                self.problems.append(f"{who} is said to be node {operator.node} of {count}")
                continue
            op_type = graph.nodes[operator.node].op_type
            if op_type != operator.op_type:
                self.problems.append(f"{who} is said to be {operator.op_type}, but is {op_type}")
            operators[operator.node] = operator
        return operators

    def _local(self, section: Section, formal: str, inferred: InferredGraph | None) -> str:
        name = _unused(f"{section.name}:{formal}", self.values)
        unknown = ValueFacts(name, ValueRole.ACTIVATION, 0, None, "", None)
        facts = inferred.values.get(formal, unknown) if inferred else unknown
        self.values[name] = replace(facts, name=name)
        return name


def _known(formals: tuple[str, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of what a node can keep on chip; a literal is part of the operator."""
    return tuple(names[formal] for formal in formals if formal in names)


def _unused(name: str, taken: set[str] | dict[str, ValueFacts]) -> str:
    while name in taken:
        name += "'"
    return name


def _given(program: Program) -> Iterator[str]:
    """Yield what is there before a section runs: states, packs and what the host makes."""
    made = {symbol for kernel in program.host_kernels for symbol in kernel.outputs}
    states = states_of(program)
    there = made | states.all | states.packs.keys()
    yield from (symbol.name for index, symbol in enumerate(program.symbols) if index in there)


def _role(symbol: Symbol, given: frozenset[str]) -> ValueRole:
    if symbol.kind is SymbolKind.INPUT or symbol.name in given:
        return ValueRole.INPUT
    if symbol.kind in (SymbolKind.WEIGHT, SymbolKind.CONSTANT):
        return ValueRole.WEIGHT
    return ValueRole.ACTIVATION


def _symbol_facts(symbol: Symbol, given: frozenset[str]) -> ValueFacts:
    return ValueFacts(
        name=symbol.name,
        role=_role(symbol, given),
        dtype=symbol.dtype,
        shape=symbol.shape,
        type=symbol.type,
        nbytes=dtypes.static_nbytes(symbol.dtype, symbol.shape),
        declared=symbol.declared,
    )


def _ports(program: Program, way: str) -> tuple[str, ...]:
    ports = (port for graph in program.graphs for port in getattr(graph, way))
    return tuple(program.symbols[port.symbol].name for port in ports)


def _group(group: FusionGroup) -> Group:
    return Group(group.name, tuple(operator.name for operator in group.operators))


def _planned(sections: Sequence[Section]) -> tuple[PlannedSection, ...]:
    planned, first = [], 0
    for section in sections:
        numbers = tuple(range(first, first + len(section.groups)))
        planned.append(PlannedSection(section.name, section.type, numbers))
        first += len(section.groups)
    return tuple(planned)


def _traffic(program: Program, view: DataflowView, live_sets: Sequence[LiveSets]) -> int:
    """Return the bytes between sections: what the estimates say, less the caller's share."""
    total = sum(s.estimate.bytes_in + s.estimate.bytes_out for s in program.sections)
    crossing = [view.values[name] for s in live_sets for name in (*s.live_in, *s.live_out)]
    modelled = sum(facts.modelled_nbytes for facts in crossing)
    if total == modelled:  # what is open counts, but in files of earlier compilers
        total -= sum(facts.modelled_nbytes for facts in crossing if facts.nbytes is None)
    given, taken = set(view.inputs), set(view.outputs)
    own = [name for sets in live_sets for name in sets.live_in if name in given]
    own += [name for sets in live_sets for name in sets.live_out if name in taken]
    return total - sum(view.values[name].device_nbytes or 0 for name in own)
