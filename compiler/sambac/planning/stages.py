"""A graph cut into stages: one for each type of section, planned each as a model of its own.

A training step is one graph whose outputs belong to the forward pass, the backward pass, the
optimizer and so on. An operator belongs to the first stage with an output that needs it. What
crosses from one stage to a later one is an output of the one and an input of the other.

Buckets are gradients that are reduced together, while the backward pass goes on.
The backward pass ends with the gradients of the first layers. Those of the last layers are there
long before, and their reduction may run beside what computes the others. So a stage is cut into
parts, numbered from 0, by the gradients that its operators make or read:

    BCKWD 0, REDUCE 0, BCKWD 1, REDUCE 1, ..., GRADNORM 0, GRADNORM 1, ..., OPT 0, OPT 1, ...

In REDUCE sections processes that train together reduce gradients where they are.

The forward pass may go on in another section where a user wants a break (`parts_of`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from pef.program import SectionType
from pef.stages import ORDER, behind
from pef.wording import did_you_mean
from sambac.facts import StepFacts

from .plans import FusionPlan, LiveSets, PlannedSection, PlannedStage, SectionPlan
from .view import DataflowView, OpFacts, first_reaching

_RANK = {kind: rank for rank, kind in enumerate(ORDER)}
_Place = tuple[int, int]
"""A stage: the rank of its type, and the number of its bucket of gradients."""


def split(
    view: DataflowView,
    stages: Mapping[str, SectionType],
    buckets: Buckets | None = None,
    breaks: Sequence[str] = (),
) -> tuple[DataflowView, ...]:
    """Return a view for each stage of `view`, in the order of the schedule.

    `stages` says to which stage each output belongs. Operators bear their stage's type, and the
    names of operators and values stay. A cloned operator is in every stage that copies it. Several
    `buckets` cut the stages that make gradients, and those that read them; `breaks` cut the forward
    pass (see `parts_of`).
    """
    ranks = _ranks(view, stages)
    cut = buckets is not None and len(buckets.reduced) > 1
    numbers = _numbers(view, ranks, buckets) if buckets is not None and cut else {}
    if breaks:
        parts = parts_of(view, breaks)
        forward = [name for name, rank in ranks.items() if rank == _RANK[SectionType.FWD]]
        numbers = {**numbers, **{name: parts[name] for name in forward}}
    places = {
        name: (ranks[name], numbers.get(name, 0)) for name, op in view.ops.items() if not op.cloned
    }
    readers: dict[str, set[_Place]] = {}
    for op, values in view.reads.items():
        for value in values:
            readers.setdefault(value, set()).add(places[op])
    return tuple(_stage(view, place, places, readers) for place in sorted(set(places.values())))


def _ranks(view: DataflowView, stages: Mapping[str, SectionType]) -> dict[str, int]:
    """Return the rank of the first stage that needs each operator."""
    wanted: list[list[str]] = [[] for _ in ORDER]
    for value, kind in stages.items():
        if value in view.producer:
            wanted[_RANK[kind]].append(view.producer[value])
    found = first_reaching(view.graph.reverse(copy=False), wanted)
    return {name: found.get(name, len(ORDER) - 1) for name in view.ops}


def _numbers(view: DataflowView, ranks: Mapping[str, int], buckets: Buckets) -> dict[str, int]:
    """Return the number of the bucket that each operator belongs to.

    In the backward pass that is the first one which needs the operator. Behind it, it is the last
    one that the operator depends on, or else the first one that reads its results.
    """
    last = len(buckets.reduced) - 1
    within = nx.DiGraph((a, b) for a, b in view.graph.edges if ranks[a] == ranks[b])
    within.add_nodes_from(view.ops)
    numbers = _numbers_behind(view, ranks, buckets, within)
    wanted: list[list[str]] = [[] for _ in buckets.reduced]
    for name, number in numbers.items():
        wanted[number].append(name)
    for value, number in buckets.made.items():
        wanted[number].append(view.producer[value])
    needed = first_reaching(within.reverse(copy=False), wanted)
    default = {_RANK[SectionType.BCKWD]: last}
    divided = (_RANK[SectionType.BCKWD], *(_RANK[each] for each in behind(SectionType.REDUCE)))
    return {
        name: numbers.get(name, needed.get(name, default.get(rank, 0)))
        for rank in divided
        for name in view.ops
        if ranks[name] == rank
    }


def _numbers_behind(
    view: DataflowView, ranks: Mapping[str, int], buckets: Buckets, within: nx.DiGraph[str]
) -> dict[str, int]:
    """Return the numbers of what depends on reduced gradients within its own stage."""
    behind: list[list[str]] = [[] for _ in buckets.reduced]
    for value, number in buckets.read.items():
        readers = view.consumers.get(value, ())
        behind[number] += [name for name in readers if ranks[name] > _RANK[SectionType.BCKWD]]
    found = first_reaching(within, reversed(behind))
    return {name: len(behind) - 1 - number for name, number in found.items()}


def _stage(
    view: DataflowView,
    place: _Place,
    places: Mapping[str, _Place],
    readers: Mapping[str, set[_Place]],
) -> DataflowView:
    """Return the view of one stage."""
    kind = ORDER[place[0]]
    members = view.with_clones(name for name, own in places.items() if own == place)
    ops: dict[str, OpFacts] = {
        name: replace(op, section_type=kind) for name, op in view.ops.items() if name in members
    }
    return view.part(ops, lambda value: bool(readers.get(value, set()) - {place}))


_LEAST = 4 << 20
"""Bytes of gradients that make a section of their own worth while."""
_SHARE = 5
"""A bucket is full at this part of all gradients: each border keeps values in memory."""


@dataclass(frozen=True)
class Buckets:
    """What is reduced together, in the order of the schedule; all gradients if not cut at all.

    `reduced` are names of values, `made` maps the outputs of the backward pass that are behind them
    to the number of their bucket.
    """

    reduced: tuple[tuple[str, ...], ...]
    made: Mapping[str, int]

    @property
    def read(self) -> Mapping[str, int]:
        """The number of the bucket of each value in `reduced`."""
        return {name: number for number, names in enumerate(self.reduced) for name in names}


def plan_buckets(view: DataflowView, facts: StepFacts, *, cut: bool) -> Buckets:
    """Return the buckets of the gradients that `facts` wants reduced; one without `cut`.

    `view` is of the whole step. Gradients come in the order in which its operators make the last of
    each; a bucket is full at a share of their bytes.
    """
    makers = _makers(view, facts)
    place = {name: position for position, name in enumerate(view.ops)}
    last = {name: max(place[view.producer[v]] for v in makers[name]) for name in facts.reduced}
    if not cut:
        return _numbered([tuple(facts.reduced)] if facts.reduced else [], makers)
    sizes = {name: view.values[name].nbytes or 0 for name in facts.reduced}
    full = max(_LEAST, sum(sizes.values()) // _SHARE)
    buckets: list[list[str]] = []
    room = 0
    for name in sorted(facts.reduced, key=last.__getitem__):
        if room <= 0:
            buckets.append([])
            room = full
        buckets[-1].append(name)
        room -= sizes[name]
    if len(buckets) > 1 and sum(sizes[name] for name in buckets[-1]) < _LEAST // 4:
        rest = buckets.pop()
        buckets[-1] += rest
    order = {name: position for position, name in enumerate(facts.reduced)}
    return _numbered([tuple(sorted(names, key=order.__getitem__)) for names in buckets], makers)


def _makers(view: DataflowView, facts: StepFacts) -> dict[str, tuple[str, ...]]:
    """Return the values of `view` that each reduced gradient consists of.

    A pack consists of the new values of its members.
    """
    members = {pack.name: tuple(name for name, _ in pack.members) for pack in facts.packs}
    newest = {
        symbol: value
        for value, symbol in facts.updates.items()
        if facts.stages.get(value) is SectionType.BCKWD
    }
    found: dict[str, tuple[str, ...]] = {}
    for name in facts.reduced:
        symbols = members.get(name, (name,))
        found[name] = tuple(s if s in view.producer else newest[s] for s in symbols)
    return found


def _numbered(reduced: Sequence[tuple[str, ...]], makers: Mapping[str, Collection[str]]) -> Buckets:
    made = {
        value: number
        for number, names in enumerate(reduced)
        for name in names
        for value in makers[name]
    }
    return Buckets(tuple(reduced), made)


def with_reductions(
    stages: Sequence[PlannedStage], view: DataflowView, buckets: Buckets, prefix: str
) -> list[PlannedStage]:
    """Return `stages` with one more for each of `buckets`, which lists its values of `view`.

    The names of their sections begin with `prefix`.
    It stands behind the section that makes the last of them. It has no operators: what happens in
    it is up to the host.
    """
    found = list(stages)
    for number, reduced in enumerate(buckets.reduced):
        made = {value for value, bucket in buckets.made.items() if bucket == number}
        last = max(i for i, stage in enumerate(found) if not made.isdisjoint(stage.view.producer))
        found.insert(last + 1, _reduction(view, reduced, f"{prefix}reduce_{number}"))
    return found


def _reduction(view: DataflowView, reduced: tuple[str, ...], name: str) -> PlannedStage:
    values = {name: view.values[name] for name in reduced}
    section = PlannedSection(name, SectionType.REDUCE, ())
    return PlannedStage(
        view=DataflowView(ops={}, values=values, inputs=reduced, outputs=()),
        fusion=FusionPlan(()),
        sections=SectionPlan((section,), schedule=(0,), traffic=0, lower_bound=0),
        live_sets=(LiveSets((), live_in=reduced, weights=(), live_out=()),),
    )


def parts_of(view: DataflowView, breaks: Sequence[str]) -> Mapping[str, int]:
    """Return the number of the part of the pass that each operator is in, counted from 0.

    Each of `breaks` is a pattern for the whole name of an operator, of what it writes or of its
    module; the first operator that fits begins a part. What needs such an operator is behind it,
    all else before. Where two breaks mean one operator, there is one break.
    """
    starts = [name for pattern in breaks for name in _first(view, re.compile(pattern))]
    order = {name: place for place, name in enumerate(view.ops)}
    last_first = sorted(set(starts), key=order.__getitem__, reverse=True)
    found = first_reaching(view.graph, ([name] for name in last_first))
    return {name: len(last_first) - found.get(name, len(last_first)) for name in view.ops}


def chip_stages(
    view: DataflowView, breaks: Sequence[str], chip_breaks: Sequence[str]
) -> tuple[int, ...]:
    """Return the stages of inference with which chips begin, of those that `breaks` make."""
    parts = parts_of(view, breaks)
    numbers = sorted({parts[name] for name, op in view.ops.items() if not op.cloned})
    starts = (name for pattern in chip_breaks for name in _first(view, re.compile(pattern)))
    return tuple(sorted({numbers.index(parts[name]) for name in starts} - {0}))


def _first(view: DataflowView, pattern: re.Pattern[str]) -> list[str]:
    """Return the first operator that `pattern` means, none if there is none."""
    for op in view.ops.values():
        if not op.cloned and any(map(pattern.fullmatch, _names(op))):
            return [op.name]
    return []


def idle_breaks(
    views: Iterable[DataflowView], asked: Mapping[str, Sequence[str]]
) -> tuple[str, ...]:
    """Return a sentence for each of the patterns `asked`, by option, that begins no section.

    That is one which means no operator of the forward pass in any of `views`.
    """
    names = dict.fromkeys(
        name
        for view in views
        for op in view.ops.values()
        if not op.cloned and op.section_type is SectionType.FWD
        for name in _names(op)
    )
    return tuple(
        f"no operator fits {option} {pattern!r}{did_you_mean(pattern, filter(None, names))}"
        for option, patterns in asked.items()
        for pattern in patterns
        if not any(map(re.compile(pattern).fullmatch, names))
    )


def _names(op: OpFacts) -> tuple[str, ...]:
    """Return what a break may call `op`."""
    return (op.name, op.module, *op.outputs)
