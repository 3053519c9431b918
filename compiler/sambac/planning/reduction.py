"""REDUCE sections: gradients that processes which train together reduce where they are."""

from __future__ import annotations

from collections.abc import Sequence

from pef.program import SectionType

from .buckets import Buckets
from .plans import FusionPlan, LiveSets, PlannedSection, SectionPlan
from .program_plan import PlannedStage
from .view import DataflowView


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
