"""A graph cut into stages: one for each type of section, planned each as a model of its own.

A training step is one graph whose outputs belong to the forward pass, the backward pass, the
optimizer and so on. An operator belongs to the first stage with an output that needs it. What
crosses from one stage to a later one is an output of the one and an input of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pef.program import SectionType

from .buckets import Buckets
from .flow import reads_through_clones
from .view import DataflowView, OpFacts, ValueFacts, ValueRole

ORDER = (
    SectionType.ZEROGRAD,
    SectionType.FWD,
    SectionType.BCKWD,
    SectionType.REDUCE,
    SectionType.GRADNORM,
    SectionType.OPT,
)
_RANK = {kind: rank for rank, kind in enumerate(ORDER)}
_Place = tuple[int, int]
"""A stage: the rank of its type, and the number of its bucket of gradients."""


def split(
    view: DataflowView, stages: Mapping[str, SectionType], buckets: Buckets | None = None
) -> tuple[DataflowView, ...]:
    """Return a view for each stage of `view`, in the order of the schedule.

    `stages` says to which stage each output belongs. Operators bear their stage's type, and the
    names of operators and values stay. A cloned operator is in every stage that copies it. Several
    `buckets` cut the stages that make gradients, and those that read them.
    """
    ranks = _ranks(view, stages)
    cut = buckets is not None and len(buckets.reduced) > 1
    numbers = _numbers(view, ranks, buckets) if buckets is not None and cut else {}
    places = {
        name: (ranks[name], numbers.get(name, 0)) for name, op in view.ops.items() if not op.cloned
    }
    reads = reads_through_clones(view)
    readers: dict[str, set[_Place]] = {}
    for op, values in reads.items():
        for value in values:
            readers.setdefault(value, set()).add(places[op])
    return tuple(_stage(view, place, places, readers) for place in sorted(set(places.values())))


def _numbers(view: DataflowView, ranks: Mapping[str, int], buckets: Buckets) -> dict[str, int]:
    """Return the number of the bucket that each operator belongs to.

    In the backward pass that is the first one which needs the operator. Behind it, it is the last
    one that the operator depends on, or else the first one that reads its results.
    """
    numbers = _numbers_behind(view, ranks, buckets.read)
    last = len(buckets.reduced) - 1
    default = {_RANK[SectionType.BCKWD]: last}
    for name, op in reversed(view.ops.items()):
        if name in numbers:
            continue
        found = [buckets.made[value] for value in op.outputs if value in buckets.made]
        found += [
            numbers[reader]
            for value in op.outputs
            for reader in view.consumers.get(value, ())
            if ranks[reader] == ranks[name]
        ]
        numbers[name] = min(found, default=default.get(ranks[name], 0))
    divided = {_RANK[kind] for kind in (SectionType.BCKWD, SectionType.GRADNORM, SectionType.OPT)}
    return {name: number for name, number in numbers.items() if ranks[name] in divided}


def _numbers_behind(
    view: DataflowView, ranks: Mapping[str, int], read: Mapping[str, int]
) -> dict[str, int]:
    """Return the numbers of what depends on reduced gradients within its own stage."""
    numbers: dict[str, int] = {}
    for name, op in view.ops.items():
        if ranks[name] <= _RANK[SectionType.BCKWD]:
            continue
        found = [read[value] for value in op.inputs if value in read]
        makers = (view.producer.get(value, "") for value in op.inputs)
        found += [numbers[m] for m in makers if m in numbers and ranks[m] == ranks[name]]
        if found:
            numbers[name] = max(found)
    return numbers


def _ranks(view: DataflowView, stages: Mapping[str, SectionType]) -> dict[str, int]:
    """Return the rank of the type of every operator."""
    rank_of: dict[str, int] = {}
    last = len(ORDER) - 1
    for name, op in reversed(view.ops.items()):
        ranks = [_RANK[stages[value]] for value in op.outputs if value in stages]
        readers = (reader for value in op.outputs for reader in view.consumers.get(value, ()))
        ranks += [rank_of[reader] for reader in readers]
        rank_of[name] = min(ranks, default=last)
    return rank_of


def _stage(
    view: DataflowView,
    place: _Place,
    places: Mapping[str, _Place],
    readers: Mapping[str, set[_Place]],
) -> DataflowView:
    """Return the view of one stage."""
    kind = ORDER[place[0]]
    members = _with_clones(view, {name for name, own in places.items() if own == place})
    ops: dict[str, OpFacts] = {
        name: replace(op, section_type=kind) for name, op in view.ops.items() if name in members
    }
    made = {value for op in ops.values() for value in op.outputs}
    values: dict[str, ValueFacts] = {}
    for op in ops.values():
        for value in (*op.inputs, *op.outputs):
            values.setdefault(value, _seen_from(view.values[value], value in made))
    returned = set(view.outputs)
    outputs = tuple(
        value
        for name, op in ops.items()
        if not op.cloned
        for value in op.outputs
        if value in returned or readers.get(value, set()) - {places[name]}
    )
    inputs = tuple(name for name, facts in values.items() if facts.role is ValueRole.INPUT)
    return DataflowView(ops=ops, values=values, inputs=inputs, outputs=outputs)


def _seen_from(facts: ValueFacts, made_here: bool) -> ValueFacts:
    """Return the facts of a value as a stage sees it: what others make is an input."""
    if facts.role is ValueRole.ACTIVATION and not made_here:
        return replace(facts, role=ValueRole.INPUT)
    return facts


def _with_clones(view: DataflowView, members: set[str]) -> set[str]:
    """Return `members` and the cloned operators that they need, through other clones too."""
    found, pending = set(members), list(members)
    while pending:
        for value in view.ops[pending.pop()].inputs:
            maker = view.producer.get(value)
            if maker is not None and view.ops[maker].cloned and maker not in found:
                found.add(maker)
                pending.append(maker)
    return found
