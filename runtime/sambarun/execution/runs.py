"""Runs of plans: step after step, noted when they are over, and made good when they break off.

What breaks off may have left something in the states of a program. An interrupt may come between
any two operations of Python, but not while onnxruntime computes. So each step that has been made is
noted in one piece with the call that made it (`steps.called`), and what is noted of a run that
broke off decides what becomes of it:

all steps are made          it is over; only its results are lost
no state has been updated   it has not been, and may be made again
nothing has failed          the steps that are left are made before the interrupt goes on
something has               the updated states are torn: of no use until they have other values
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from pef.states import States
from sambarun.device.image import Image
from sambarun.device.memory import Memory
from sambarun.device.state import StateStore
from sambarun.errors import RunError
from sambarun.linking.schedule import Overlaps
from sambarun.sessions.opening import trim_heap
from sambarun.sessions.ort_errors import ORT_ERRORS, message_of

from .clipping import Unclipped
from .host_steps import Host
from .plan import Plan
from .spans import Stopwatch
from .steps import PlanStep, rehearse

# What a step raises when it fails; anything else has come from outside.
_FAILURES = (*ORT_ERRORS, RunError, MemoryError)


class Runs:
    """Runs plans in one workspace, one at a time."""

    def __init__(self, image: Image, memory: Memory, state: StateStore, host: Host) -> None:
        self._image = image
        self._memory = memory
        self._state = state
        self._clock = host.clock
        self._unclipped = Unclipped(memory)
        self._last: Plan | None = None
        self._checked: Plan | None = None
        self._new = False  # whether a plan has been made and not yet run
        self._series: Series | None = None

    def expect_new(self) -> None:
        """Note that a plan has been made that has not yet run."""
        self._new = True

    def forget_last(self) -> None:
        """Note that what the last run has left is no longer all there."""
        self._last = None
        self._unclipped.forget()

    def run(self, plan: Plan, watch: Stopwatch | None = None) -> None:
        """Run the steps of `plan`, a lap of `watch` each, for which they have run before.

        The first of its runs in a row waits for the checks of the file, begun with the plan.

        Raises `RunError` with the section that fails, or with what is damaged.
        """
        memory, clock = self._memory, self._clock
        if plan.clipping is not None:
            self._unclipped.tell(plan.graph, plan.clipping)
        attempt = Attempt(plan, clock.steps, clock.forwards, memory.unfinished)
        memory.unfinished = partial(self._settle, attempt)
        try:
            attempt.begun = True
            if plan.draws:
                clock.forwards = attempt.forwards + 1
            for step in plan.steps:
                if watch is not None:
                    rehearse(step, memory)
                    watch.start()
                step.run(memory, attempt.done)
                if watch is not None:
                    watch.stop()
        except BaseException as error:
            self._break_off(attempt, error)
            raise
        self._complete(attempt)
        if plan is not self._checked:
            self._image.checks.join()
            self._checked = plan

    def begin_series(self) -> None:
        """Begin with runs that together make one training step."""
        series = Series(self._clock.steps, self._clock.forwards)
        self._memory.unfinished = partial(self._give_up, series)
        self._series = series

    def end_series(self) -> None:
        """End it: the training step has been made."""
        self._memory.unfinished = None
        self._series = None

    def _break_off(self, attempt: Attempt, error: BaseException) -> None:
        """End a run in which `error` was raised; raise `RunError` if onnxruntime has failed."""
        left = attempt.left
        goes_on = not isinstance(error, _FAILURES) and all(step.repeatable for step in left)
        attempt.clean = goes_on
        if goes_on and left and attempt.updated(self._image.states):
            self._keep_last(attempt)
            for step in left:
                step.run(self._memory, attempt.done)
        self._settle(attempt)
        if left and isinstance(error, ORT_ERRORS):
            what = self._image.describe(left[0].unit)
            raise RunError(f"{what} failed: {message_of(error)}") from error

    def _settle(self, attempt: Attempt) -> None:
        """Decide what has become of a run that broke off."""
        self._last = None
        if attempt.left:
            plan = attempt.plan
            self._memory.forget(plan.writes, plan.valued)
            self._undo(attempt.updated(self._image.states), plan.steps, attempt.forwards)
            self._memory.unfinished = attempt.outer
        else:
            self._keep_last(attempt)
            self._complete(attempt)

    def _complete(self, attempt: Attempt) -> None:
        """Note what a run has written, once for all runs of its plan in a row."""
        plan, memory = attempt.plan, self._memory
        for symbol in plan.settles:
            memory.settle(symbol)
        if plan is not self._last:
            memory.record(plan.writes)
            self._unclipped.note(plan.graph, plan.clipping)
            self._last = plan
            if self._new:
                self._new = False
                trim_heap()
        if self._state.torn:
            self._state.torn -= overwritten(plan.steps, self._image.states)
        if plan.last:
            self._clock.steps = attempt.steps + 1
        if self._series is not None:
            self._series.plans.append(plan)
        memory.unfinished = attempt.outer

    def _keep_last(self, attempt: Attempt) -> None:
        """Keep what the last step that was made gave: the interrupt may have come before that."""
        if attempt.done:
            step: PlanStep = attempt.plan.steps[len(attempt.done) - 1]
            step.keep(self._memory, attempt.done[-1])

    def _give_up(self, series: Series) -> None:
        """Decide what has become of a series that broke off between two runs."""
        self._series = None
        if self._clock.steps == series.steps:
            self._undo(updated(series.made, self._image.states), series.made, series.forwards)

    def _undo(self, written: set[int], steps: tuple[PlanStep, ...], forwards: int) -> None:
        """Take back runs of `steps`, which have `written` states, or say what they have torn.

        What they clear at first, gradients that accumulate, begins anew in any case.
        """
        cleared = overwritten(steps, self._image.states) if written else set()
        torn = written - cleared
        self._state.torn |= torn
        self._state.reset(sorted(written & cleared))
        if torn:
            # What was found to be ready for a run has to be looked at again.
            self._memory.feeds = dict(self._memory.feeds)
        else:
            self._clock.forwards = forwards


@dataclass(slots=True)
class Attempt:
    """A run of `plan` that has not come to its end.

    `steps` and `forwards` are what the clock showed before, `outer` is what was unfinished. `done`
    holds what the calls of its steps returned, those that were made. `begun` tells whether any step
    may have been, `clean` that the first one that is not done has not been begun either.
    """

    plan: Plan
    steps: int
    forwards: int
    outer: Callable[[], None] | None
    done: list[object] = field(default_factory=list)
    begun: bool = False
    clean: bool = False

    @property
    def left(self) -> tuple[PlanStep, ...]:
        """The steps that have not been made."""
        return self.plan.steps[len(self.done) :]

    def updated(self, states: States) -> set[int]:
        """Return the states that may have been written."""
        count = len(self.done) + (not self.clean) if self.begun else 0
        return updated(self.plan.steps[:count], states)


@dataclass(frozen=True, slots=True)
class Series:
    """Several runs that make one training step; `plans` are those that are over.

    `steps` and `forwards` are what the clock showed before.
    """

    steps: int
    forwards: int
    plans: list[Plan] = field(default_factory=list)

    @property
    def made(self) -> tuple[PlanStep, ...]:
        """The steps of the runs that are over."""
        return tuple(step for plan in self.plans for step in plan.steps)


def updated(steps: Iterable[PlanStep], states: States) -> set[int]:
    """Return the states that `steps` write; a reduction writes where it reads."""
    found: set[int] = set()
    for step in steps:
        found.update(step.unit.outputs if step.repeatable else step.unit.inputs + step.unit.outputs)
    return _own(found, states)


def overwritten(steps: Iterable[PlanStep], states: States) -> set[int]:
    """Return the states that `steps` write before any of them reads them."""
    found: set[int] = set()
    read: set[int] = set()
    overlaps = Overlaps(states)
    for step in steps:
        read |= overlaps.touched(step.unit.inputs)
        found |= _own(step.unit.outputs, states) - read
    return found


def _own(symbols: Iterable[int], states: States) -> set[int]:
    """Return the states among `symbols`, and for packs the states inside them."""
    return {
        part
        for symbol in states.all.intersection(symbols)
        for part in states.packs.get(symbol, (symbol,))
    }
