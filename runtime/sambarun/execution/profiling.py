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
    plan = workspace.plan(chosen, link=False)
    run_by = workspace.providers({s for step in plan.steps for s in step.unit.sections})
    return _measured(program, workspace, plan, inputs, run_by)


def profiled_with_operators(
    program: pef.Program, workspace: Workspace, chosen: Chosen, inputs: Mapping[str, object]
) -> Profile:
    """Run `chosen` unlinked and measure operators too, through files that onnxruntime writes."""
    # Imported here because few runs are profiled, and all of them wait for imports.
    from tempfile import TemporaryDirectory

    from .operator_times import operator_spans

    with TemporaryDirectory(prefix="sambarun-") as folder:
        plan, fitted = workspace.profiled(chosen, folder)
        run_by = {number: found.provider for number, found in fitted.profiled.items()}
        profile = _measured(program, workspace, plan, inputs, run_by)
        return profile._replace(operators=tuple(operator_spans(fitted, profile.spans)))


def _measured(
    program: pef.Program,
    workspace: Workspace,
    plan: Plan,
    inputs: Mapping[str, object],
    run_by: Mapping[int, str],
) -> Profile:
    workspace.attach(plan, inputs)
    watch = Stopwatch()
    workspace.runs.run(plan, watch)
    laps = zip(plan.steps, watch.laps, strict=True)
    spans = tuple(_span(program, step, lap, run_by) for step, lap in laps)
    return Profile(workspace.results(plan, copy=True), spans, program)


def _span(
    program: pef.Program, step: PlanStep, lap: tuple[int, int], run_by: Mapping[int, str]
) -> Span:
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
        provider="" if step.kind else run_by.get(step.unit.sections[0], ""),
    )
