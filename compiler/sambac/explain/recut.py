"""Stages of a file cut anew: what planners decide of them once something has changed.

A file has the groups and the order in which they run, but not the order in which the model had its
operators, by which groups grow. So a group stays where the chip holds it, and is fused anew by
itself where it does not; groups stay in their order. Where nothing changed, the sections are those
of the file.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sambac.arch import Arch
from sambac.options import Level
from sambac.planning.fusion import most_of, plan_fusion
from sambac.planning.liveness import live_sets_of
from sambac.planning.plans import FusionPlan, Group, PlannedStage
from sambac.planning.resources import limits_of, value_use
from sambac.planning.sections import SectionRequest, plan_sections
from sambac.planning.view import DataflowView


def cut_anew(stage: PlannedStage, arch: Arch, level: Level) -> PlannedStage:
    """Return what becomes of a stage that was planned at `level`."""
    if not stage.view.ops:  # gradients that are reduced
        return stage
    groups = _fused_anew(stage, arch, level)
    view = _in_order(_named(stage), groups)
    return _cut(view, FusionPlan(groups), arch, level)


def fused_anew(stage: PlannedStage, arch: Arch) -> PlannedStage:
    """Return a stage that is fused and cut at O3 as if nobody had planned it before."""
    if not stage.view.ops:
        return stage
    return _cut(stage.view, plan_fusion(stage.view, arch, "O3"), arch, "O3")


def _cut(view: DataflowView, fusion: FusionPlan, arch: Arch, level: Level) -> PlannedStage:
    sections = plan_sections(view, fusion, arch, SectionRequest(level))
    return PlannedStage(view, fusion, sections, live_sets_of(view, fusion, sections))


def _fused_anew(stage: PlannedStage, arch: Arch, level: Level) -> tuple[Group, ...]:
    """Return the groups with those fused anew that the chip does not hold, as fusion counts."""
    view, limits = stage.view, limits_of(arch)
    values = value_use(view, limits)

    def again(group: Group) -> tuple[Group, ...]:
        # Casts that only round join their operators whatever the chip holds.
        counted = [op for op in group.ops if op not in view.rounds and op not in view.loads]
        if len(counted) <= 1 or most_of(view, counted, values).within(limits):
            return (group,)
        return plan_fusion(_only(view, group), arch, level).groups

    return tuple(each for group in stage.fusion.groups for each in again(group))


def _only(view: DataflowView, group: Group) -> DataflowView:
    """Return the view of one group, with the clones that it reads."""
    wanted = view.with_clones(group.ops)
    ops = {name: op for name, op in view.ops.items() if name in wanted}
    return view.part(ops, lambda value: not wanted.issuperset(view.consumers.get(value, ())))


def _named(stage: PlannedStage) -> DataflowView:
    """Return the view with the section of each operator as its module, by which O1 cuts.

    Which modules the model had no file says; O1 makes a section of one, or several.
    """
    ops = dict(stage.view.ops)
    for section in stage.sections.sections:
        for op in stage.fusion.ops_of(section.groups):
            ops[op] = replace(ops[op], module=section.name)
    return replace(stage.view, ops=ops)


def _in_order(view: DataflowView, groups: Iterable[Group]) -> DataflowView:
    """Return the view with operators group by group, a clone with the first that reads it."""
    place: dict[str, int] = {}
    for number, group in enumerate(groups):
        for op in view.with_clones(group.ops):
            place.setdefault(op, number)
    return replace(view, ops={op: view.ops[op] for op in sorted(view.ops, key=place.__getitem__)})
