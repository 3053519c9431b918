"""Runs that are measured, section by section."""

from __future__ import annotations

from collections.abc import Mapping

import pef
from sambarun.linking.schedule import Chosen

from .plan import Plan
from .profiler import Profile
from .spans import Span, Stopwatch
from .steps import PlanStep
from .workspace import Workspace


def profiled(
    program: pef.Program, workspace: Workspace, chosen: Chosen, inputs: Mapping[str, object]
) -> Profile:
    """Run `chosen` unlinked and measure each step."""
    return _measured(program, workspace, workspace.plan(chosen, link=False), inputs)


def profiled_with_operators(
    program: pef.Program, workspace: Workspace, chosen: Chosen, inputs: Mapping[str, object]
) -> Profile:
    """Run `chosen` unlinked and measure operators too, through files that onnxruntime writes."""
    # Imported here because few runs are profiled, and all of them wait for imports.
    from tempfile import TemporaryDirectory

    from .operator_times import operator_spans

    with TemporaryDirectory(prefix="sambarun-") as folder:
        plan, fitted = workspace.profiled(chosen, folder)
        profile = _measured(program, workspace, plan, inputs)
        return profile._replace(operators=tuple(operator_spans(fitted, profile.spans)))


def _measured(
    program: pef.Program, workspace: Workspace, plan: Plan, inputs: Mapping[str, object]
) -> Profile:
    workspace.attach(plan, inputs)
    watch = Stopwatch()
    workspace.runs.run(plan, watch)
    laps = zip(plan.steps, watch.laps, strict=True)
    spans = tuple(_span(program, step, lap) for step, lap in laps)
    return Profile(workspace.results(plan, copy=True), spans, program)


def _span(program: pef.Program, step: PlanStep, lap: tuple[int, int]) -> Span:
    section = program.sections[step.unit.sections[0]]
    start, duration = lap
    return Span(
        call=step.unit.calls[0],
        section=step.unit.sections[0],
        name=f"{section.name}/{step.kind}" if step.kind else section.name,
        type="HOST" if step.kind else section.type.name,
        start=start,
        duration=duration,
        kind=step.kind,
    )
