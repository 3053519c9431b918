"""Runs that are measured, section by section, and their operators as onnxruntime has noted them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pef
from pef.foreign import reading, why
from sambarun.device.fitted import Fitted
from sambarun.errors import RunError
from sambarun.linking.nodes import number_in
from sambarun.linking.schedule import Chosen

from .plan import Plan
from .profiler import Profile
from .spans import OperatorSpan, Span, Stopwatch
from .steps import REHEARSALS, PlanStep
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

    from .profiling import operator_spans

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


_NS_PER_US = 1000
_SUFFIX = "_kernel_time"


class _SessionRun(NamedTuple):
    """One run of a session, in us of a clock of its own, and the events of its nodes."""

    start: int
    duration: int
    nodes: tuple[dict[str, Any], ...]


def operator_spans(fitted: Fitted, spans: Sequence[Span]) -> Iterator[OperatorSpan]:
    """Yield the operators that ran within `spans`, and end the profiles of `fitted`.

    Operators that onnxruntime has fused are one, called after one of them; what it has put in
    between bears its name. A section that runs another program than the portable one tells no names
    of its operators.
    """
    runs = {
        section: iter([*_runs(compiled.session.end_profiling())][REHEARSALS :: REHEARSALS + 1])
        for section, compiled in fitted.profiled.items()
    }
    names = {section: _names(fitted, section) for section in runs}
    for span in spans:
        run = next(runs[span.section], None) if span.section in runs and not span.kind else None
        if run is not None:
            yield from _within(span, run, names[span.section])


def _names(fitted: Fitted, section: int) -> Mapping[int, str]:
    """Return the names of operators by their position in the program that `section` runs."""
    program = fitted.program
    chosen = program.programs.index(fitted.program_of(section))
    described = program.sections[section]
    if chosen != described.variants[-1].program or program.programs[chosen].requires:
        return {}
    return {op.node: op.name for group in described.groups for op in group.operators}


def _runs(path: str) -> Iterator[_SessionRun]:
    """Yield the runs in a profile, which is read and removed.

    Raises `RunError` for one that is not whole: onnxruntime says nothing where a disk is full.
    """
    file = Path(path)
    with reading(partial(_cut_off, path)):
        events: list[dict[str, Any]] = json.loads(file.read_bytes())
    file.unlink()
    nodes: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda event: int(event["ts"]) + int(event["dur"])):
        if event["cat"] == "Node" and event["name"].endswith(_SUFFIX):
            nodes.append(event)
        elif event["name"] == "model_run":
            yield _SessionRun(int(event["ts"]), int(event["dur"]), tuple(nodes))
            nodes = []


def _cut_off(path: str, error: Exception) -> RunError:
    return RunError(
        f"{path}: onnxruntime could not write how long operators took ({why(error)}); is there no "
        f"space for temporary files? TMPDIR says where they are."
    )


def _within(span: Span, run: _SessionRun, names: Mapping[int, str]) -> Iterator[OperatorSpan]:
    """Yield the nodes of a run, moved into the middle of its span."""
    shift = span.start + max(span.duration - run.duration * _NS_PER_US, 0) // 2
    end = span.start + span.duration
    for event in sorted(run.nodes, key=lambda event: int(event["ts"])):
        start = min(shift + max(int(event["ts"]) - run.start, 0) * _NS_PER_US, end)
        spelled = event["name"].removesuffix(_SUFFIX)
        number = number_in(spelled)
        name = "" if number is None else names.get(number, "")
        yield OperatorSpan(
            span.call,
            span.section,
            name or (spelled if number is None else event["args"].get("op_name", "")),
            event["args"].get("op_name", ""),
            number if name else None,
            start,
            min(int(event["dur"]) * _NS_PER_US, end - start),
        )
