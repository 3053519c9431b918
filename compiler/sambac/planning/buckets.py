"""Buckets of gradients: which of them are reduced together, while the backward pass goes on.

The backward pass ends with the gradients of the first layers. Those of the last layers are there
long before, and their reduction may run beside what computes the others. So a stage is cut into
parts, numbered from 0, by the gradients that its operators make or read:

    BCKWD 0, REDUCE 0, BCKWD 1, REDUCE 1, ..., GRADNORM 0, GRADNORM 1, ..., OPT 0, OPT 1, ...

In REDUCE sections processes that train together reduce gradients where they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pef.program import SectionType
from sambac.facts import StepFacts

from .plans import FusionPlan, LiveSets, PlannedSection, SectionPlan
from .program_plan import PlannedStage
from .view import DataflowView

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
    stages: Sequence[PlannedStage], view: DataflowView, buckets: Buckets, prefix: str = ""
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
