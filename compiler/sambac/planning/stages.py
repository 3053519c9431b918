"""A graph cut into stages: one for each type of section, planned each as a model of its own.

A training step is one graph whose outputs belong to the forward pass, the backward pass, the
optimizer and so on. An operator belongs to the first stage with an output that needs it. What
crosses from one stage to a later one is an output of the one and an input of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pef.program import SectionType

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


def split(view: DataflowView, stages: Mapping[str, SectionType]) -> tuple[DataflowView, ...]:
    """Return a view for each stage of `view`, in the order of the schedule.

    `stages` says to which stage each output belongs. Operators bear their stage's type, and the
    names of operators and values stay. A cloned operator is in every stage that copies it.
    """
    types = _types(view, stages)
    reads = reads_through_clones(view)
    readers: dict[str, set[SectionType]] = {}
    for op, values in reads.items():
        for value in values:
            readers.setdefault(value, set()).add(types[op])
    present = sorted(set(types.values()), key=_RANK.__getitem__)
    return tuple(_stage(view, kind, types, readers) for kind in present)


def _types(view: DataflowView, stages: Mapping[str, SectionType]) -> dict[str, SectionType]:
    """Return the type of every operator that is not cloned."""
    rank_of: dict[str, int] = {}
    last = len(ORDER) - 1
    for name, op in reversed(view.ops.items()):
        ranks = [_RANK[stages[value]] for value in op.outputs if value in stages]
        readers = (reader for value in op.outputs for reader in view.consumers.get(value, ()))
        ranks += [rank_of[reader] for reader in readers]
        rank_of[name] = min(ranks, default=last)
    return {name: ORDER[rank_of[name]] for name, op in view.ops.items() if not op.cloned}


def _stage(
    view: DataflowView,
    kind: SectionType,
    types: Mapping[str, SectionType],
    readers: Mapping[str, set[SectionType]],
) -> DataflowView:
    """Return the view of one stage."""
    members = _with_clones(view, {name for name, own in types.items() if own is kind})
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
        if value in returned or readers.get(value, set()) - {types[name]}
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
