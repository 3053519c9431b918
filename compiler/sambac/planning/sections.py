"""Sections: which fusion groups run together between two trips to memory.

At O0 every group is a section. At O1 neighbouring groups of one module are, as far as the chip
holds them, in the fewest sections. At O3 the whole line of groups is cut where the fewest sections
and the least traffic come together: a section costs as much as the bytes that memory moves while
one is launched.
A plan says how many bytes cross between its sections, and how many have to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import networkx as nx

from pef.text import plural
from pef.wording import larger_than_chip
from sambac.arch import Arch
from sambac.errors import CompileError
from sambac.options import Level, MappingKind

from .cuts import Line, LineStop, best_cuts, even_cuts
from .plans import FusionPlan, PlannedSection, SectionPlan
from .resources import Limits, Use, ValueUse, limits_of, op_pcus, use_of, value_use
from .view import DataflowView, Node, contracted, crossings

# How sections are called where all are of one stage.
_ONE_STAGE = "section"
# What a launch costs in bytes where nobody knows the speed of memory: 20 us at 128 GB/s.
_LAUNCH_BYTES = 2_560_000
# More than any traffic between the sections of one model: then only their number counts.
_ANY_TRAFFIC = 1 << 40


@dataclass(frozen=True, slots=True)
class SectionRequest:
    """What a user wants of the sections.

    `count` asks O3 for that many; with the mapping `spatial` all are on the chip at once, beside
    those of other stages (`require_resident`). `prefix` is the stage that is planned, with which
    names of sections begin.
    """

    level: Level
    mapping: MappingKind = "section"
    count: int | None = None
    prefix: str = _ONE_STAGE


def plan_sections(
    view: DataflowView,
    fusion: FusionPlan,
    arch: Arch,
    request: SectionRequest,
) -> SectionPlan:
    """Cut the groups of `fusion` into sections and put them into an order.

    Raises `CompileError` for a request that cannot be followed, with the numbers.
    """
    planner = _Planner(view, fusion, arch, request.prefix)
    if request.count is not None:
        _check_count(request.count, request)
        return planner.even(request.count)
    match request.level:
        case "O0":
            plan = planner.single()
        case "O1":
            plan = planner.modules()
        case "O3":
            plan = planner.whole() if request.mapping == "spatial" else planner.fewest()
    if request.mapping == "spatial":
        require_resident([(view, fusion, plan)], arch)
    return plan


def require_resident(
    stages: Iterable[tuple[DataflowView, FusionPlan, SectionPlan]], arch: Arch
) -> None:
    """Raise `CompileError` unless the chip holds all sections of all these stages at once."""
    limits = limits_of(arch)
    uses = [
        use_of(view, fusion.ops_of(section.groups), limits, values)
        for view, fusion, plan in stages
        for values in (value_use(view, limits),)
        for section in plan.sections
    ]
    total = Use(sum(use.pcus for use in uses), sum(use.pmus for use in uses))
    if not total.within(limits):
        raise CompileError(
            f"The model does not fit {arch.name} as a whole: on chip at once, its "
            f"{plural(len(uses), 'section')} would take {_against(total, limits)}. Compile with "
            "the mapping 'section', or make the batch or the model smaller."
        )


def _check_count(count: int, request: SectionRequest) -> None:
    if request.level != "O3" or request.mapping == "spatial":
        raise CompileError(
            f"A number of sections ({count}) can be asked for only at O3 with the mapping "
            f"'section', not at {request.level} with {request.mapping!r}."
        )
    if count < 1:
        raise CompileError(f"Cannot cut a model into {count} sections; ask for at least one.")


@dataclass(frozen=True, slots=True)
class _Cut:
    """Group numbers in the order of execution, cut at `starts`."""

    order: tuple[int, ...]
    starts: tuple[int, ...]

    def stretches(self) -> list[tuple[int, ...]]:
        """Return the groups of each section."""
        return [self.order[a:b] for a, b in pairwise((*self.starts, len(self.order)))]


class _Planner:
    """The graph, its groups and the chip, and the ways to make sections of them."""

    def __init__(self, view: DataflowView, fusion: FusionPlan, arch: Arch, prefix: str) -> None:
        self._view = view
        self._fusion = fusion
        self._arch = arch
        self._prefix = prefix
        self._limits: Limits = limits_of(arch)
        self._values: ValueUse = value_use(view, self._limits)
        self._groups = contracted(view.placed, [group.ops for group in fusion.groups], view.sizes)
        self._order = tuple(range(len(fusion.groups)))
        self._types = [view.ops[group.ops[0]].section_type for group in fusion.groups]

    def single(self) -> SectionPlan:
        """Every group is a section, named after it."""
        names = [group.name for group in self._fusion.groups]
        return self._plan(_Cut(self._order, self._order), names)

    def modules(self) -> SectionPlan:
        """Neighbouring groups of one module are a section, as far as they fit."""
        modules = [self._module(index) for index in self._order]
        kinds = [(self._types[index], modules[index] or index) for index in self._order]
        cut = self._cheapest(kinds, _ANY_TRAFFIC)
        first = [groups[0] for groups in cut.stretches()]
        groups = self._fusion.groups
        names = _distinct(self._labelled(modules[index] or groups[index].name) for index in first)
        return self._plan(cut, names)

    def _labelled(self, name: str) -> str:
        """Return how a section of a module is called: by its stage too, where there are several."""
        return name if self._prefix == _ONE_STAGE else f"{self._prefix} {name}"

    def whole(self) -> SectionPlan:
        """One section for each stretch of one type, whatever the chip holds."""
        starts = [0, *self._type_changes()] if self._order else []
        return self._numbered(_Cut(self._order, tuple(starts)))

    def fewest(self) -> SectionPlan:
        """The cheapest cut into sections of one type each."""
        whole = self.whole()
        if len(whole.sections) <= 1 and not whole.warnings:
            return whole
        return self._numbered(self._cheapest(self._types, self._launch_bytes()))

    def _cheapest(self, kinds: Sequence[Hashable], launch: int) -> _Cut:
        """Return the cheapest cut of the better of two orders: the groups' own, and the model's.

        `kinds` are those of the groups, by number: a section is of one. A launch counts as so many
        bytes.
        """
        cheapest, cut = 0, None
        for order in (self._order, self._model_order()):
            line = self._line(order, [kinds[index] for index in order])
            total, starts = best_cuts(line, self._limits, launch)
            if cut is None or total < cheapest:
                cheapest, cut = total, _Cut(order, tuple(starts))
        assert cut is not None
        return cut

    def even(self, count: int) -> SectionPlan:
        """`count` sections of about equal length, or as many as there are groups."""
        possible = min(count, len(self._order))
        line = self._line(self._order, self._types)
        starts = even_cuts(line, possible) if possible else []
        starts = sorted({*starts, *self._type_changes()})
        plan = self._numbered(_Cut(self._order, tuple(starts)))
        if len(plan.sections) == count:
            return plan
        note = f"{count} sections were asked for, the graph gives {len(plan.sections)}"
        return replace(plan, warnings=(note, *plan.warnings))

    def _numbered(self, cut: _Cut) -> SectionPlan:
        return self._plan(cut, [f"{self._prefix}_{index}" for index in range(len(cut.starts))])

    def _plan(self, cut: _Cut, names: Sequence[str]) -> SectionPlan:
        sections = tuple(
            PlannedSection(name, self._types[groups[0]], groups)
            for name, groups in zip(names, cut.stretches(), strict=True)
        )
        graph = contracted(self._groups, cut.stretches(), self._view.sizes)
        return SectionPlan(
            sections=sections,
            schedule=tuple(range(len(sections))),
            traffic=traffic_of(self._view, graph),
            lower_bound=lower_bound(self._view, len(sections), self._limits, self._values),
            warnings=tuple(self._warnings(sections)),
        )

    def _warnings(self, sections: Sequence[PlannedSection]) -> list[str]:
        """Say which sections the chip does not hold, with the numbers."""
        found = []
        for section in sections:
            use = self._use(section.groups)
            if not use.within(self._limits):
                needs = _against(use, self._limits)
                found.append(f"{larger_than_chip(section.name)}: it needs {needs}")
        return found

    def _line(self, order: Sequence[int], kinds: Sequence[Hashable]) -> Line:
        return Line(
            stops=tuple(self._stop(index, kind) for index, kind in zip(order, kinds, strict=True)),
            nbytes=self._view.sizes,
            use=self._values,
            returned=frozenset(self._view.outputs),
        )

    def _stop(self, index: int, kind: Hashable) -> LineStop:
        ops = self._fusion.groups[index].ops
        reads = dict.fromkeys(value for op in ops for value in self._view.reads[op])
        buffered = self._view.buffered(ops)
        return LineStop(
            kind=kind,
            pcus=sum(op_pcus(self._view.ops[op]) for op in ops),
            writes=tuple(value for op in ops for value in self._view.ops[op].outputs),
            reads=tuple(value for value in reads if value in buffered),
        )

    def _model_order(self) -> tuple[int, ...]:
        """Order groups by where the model has them, as far as they do not wait for each other."""
        position = {op: at for at, op in enumerate(self._view.ops)}
        first = [position[group.ops[0]] for group in self._fusion.groups]
        return tuple(nx.lexicographical_topological_sort(self._groups, key=first.__getitem__))

    def _launch_bytes(self) -> int:
        speed = self._arch.speed(self._arch.main_memory)
        return _LAUNCH_BYTES if speed is None else int(self._arch.launch.value * speed)

    def _type_changes(self) -> list[int]:
        """Return the places on the line where another type of section begins."""
        return [i for i, (a, b) in enumerate(pairwise(self._types), start=1) if a != b]

    def _module(self, group: int) -> str:
        """Return the module of the heaviest operator of a group."""
        ops = (self._view.ops[op] for op in self._fusion.groups[group].ops)
        return max(ops, key=lambda op: op.flops).module

    def _use(self, groups: Iterable[int]) -> Use:
        ops = self._fusion.ops_of(groups)
        return use_of(self._view, ops, self._limits, self._values)


def _against(use: Use, limits: Limits) -> str:
    return f"{use.pcus} of {limits.pcus} PCUs and {use.pmus} of {limits.pmus} PMUs"


def _distinct(names: Iterable[str]) -> list[str]:
    """Number the second and later of equal names."""
    result: dict[str, None] = {}
    for name in names:
        number = 1
        while (unique := name if number == 1 else f"{name} ({number})") in result:
            number += 1
        result[unique] = None
    return list(result)


def traffic_of(view: DataflowView, sections: nx.DiGraph[Node]) -> int:
    """Return the bytes that `sections`, which are contracted operators, pass on through memory.

    A value counts once for each section that reads it without making it, and once for being
    written, unless it is an output of the model and would be written anyway.
    """
    passed = [crossing for _, _, crossing in crossings(sections)]
    written = {value for crossing in passed for value in crossing.values} - set(view.outputs)
    return sum(crossing.nbytes for crossing in passed) + sum(view.sizes[value] for value in written)


def fewest_sections(view: DataflowView, limits: Limits, values: ValueUse) -> int:
    """Return how many sections `view` takes at least, whatever is fused.

    A value that flows is in the buffer of one section, or streams out of one and into another. What
    an operator that is larger than the chip takes is left out: it has a section all the same.
    """
    ops = [op for op in view.placed if use_of(view, (op,), limits, values).within(limits)]
    written = {value for op in ops for value in view.ops[op].outputs}
    read = view.buffered(ops)
    flowing = (min(values.inside[v], 2 * values.outside[v]) for v in written & read)
    pmus = sum(flowing) + sum(values.outside[v] for v in written ^ read)
    pcus = sum(op_pcus(view.ops[op]) for op in ops)
    return max(int(len(view.placed) > 0), -(-pmus // limits.pmus), -(-pcus // limits.pcus))


def lower_bound(view: DataflowView, sections: int, limits: Limits, values: ValueUse) -> int:
    """Return traffic that no cut into so many sections can go below.

    Every way to cut a graph into single operators gives the same traffic. With fewer sections two
    arguments hold, and the better one counts: what flows must fit the double buffers of all
    sections or cross; and the sections of one connected graph are linked by values that cross.
    """
    graph = view.placed
    if sections == len(graph):
        return traffic_of(view, graph)
    readers = Counter(value for _, _, crossing in crossings(graph) for value in crossing.values)
    returned, buffered = set(view.outputs), view.buffered(graph)
    flows = [
        _Flow(
            value,
            view.sizes[value],
            readers=count,
            writes=int(value not in returned),
            pmus=values.inside[value] if value in buffered else 0,
        )
        for value, count in readers.items()
    ]
    links = sections - nx.number_weakly_connected_components(graph)
    return max(_by_capacity(flows, sections * limits.pmus), _by_links(flows, links))


@dataclass(frozen=True, slots=True)
class _Flow:
    """A value between operators, and the memory units of its buffer, 0 if it needs none.

    `writes` is 0 if the model returns it, so it is written anyway.
    """

    value: str
    size: int
    readers: int
    writes: int
    pmus: int

    @property
    def least_to_cross(self) -> int:
        """The least that it costs not to keep it in the section that writes it."""
        return self.size * (1 + self.writes)

    @property
    def least_per_read(self) -> int:
        """The least that one crossing costs: its read, and its share of the write."""
        return self.size * (self.readers + self.writes) // self.readers


def _by_capacity(flows: Sequence[_Flow], pmus: int) -> int:
    """What no buffer holds is read at least once, and written unless the model returns it.

    The cheapest for their memory units cross first, the last of them only as far as it has to.
    """
    excess = sum(flow.pmus for flow in flows) - pmus
    total = 0
    kept = [flow for flow in flows if flow.pmus]
    for flow in sorted(kept, key=lambda flow: flow.least_to_cross / flow.pmus):
        if excess <= 0:
            break
        total += flow.least_to_cross * min(excess, flow.pmus) // flow.pmus
        excess -= flow.pmus
    return total


def _by_links(flows: Sequence[_Flow], links: int) -> int:
    """Sections hang together by at least so many crossings; take the cheapest there are.

    A value can cross to at most as many sections as it has readers.
    """
    total = 0
    for flow in sorted(flows, key=lambda flow: flow.least_per_read):
        taken = min(max(links, 0), flow.readers)
        total += taken * flow.least_per_read
        links -= taken
    return total
