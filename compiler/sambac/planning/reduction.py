"""The REDUCE section: gradients that processes which train together reduce where they are."""

from __future__ import annotations

from collections.abc import Sequence

from pef.program import Estimate, SectionType

from .plans import Border, CostReport, FusionPlan, PlannedSection, SectionPlan
from .program_plan import PlannedStage
from .stages import ORDER
from .view import DataflowView

_NAME = "reduce_0"


def with_reduction(
    stages: Sequence[PlannedStage], view: DataflowView, reduced: Sequence[str]
) -> list[PlannedStage]:
    """Return `stages` with one more that lists the values `reduced` of `view`, if there are any.

    It stands behind the sections that make them and before those that use them. It has neither
    operators nor estimates of time: what happens in it is up to the host.
    """
    if not reduced:
        return list(stages)
    place = ORDER.index(SectionType.REDUCE)
    before = [stage for stage in stages if ORDER.index(_type(stage)) < place]
    return [*before, _reduction(view, tuple(reduced)), *stages[len(before) :]]


def _type(stage: PlannedStage) -> SectionType:
    return stage.sections.sections[0].type


def _reduction(view: DataflowView, reduced: tuple[str, ...]) -> PlannedStage:
    values = {name: view.values[name] for name in reduced}
    moved = sum(facts.nbytes or 0 for facts in values.values())
    section = PlannedSection(_NAME, SectionType.REDUCE, ())
    return PlannedStage(
        view=DataflowView(ops={}, values=values, inputs=reduced, outputs=()),
        fusion=FusionPlan(()),
        sections=SectionPlan((section,), schedule=(0,), traffic=0, lower_bound=0),
        borders=(Border((), inputs=reduced, weights=(), outputs=()),),
        costs=CostReport((Estimate(bytes_in=moved),)),
    )
