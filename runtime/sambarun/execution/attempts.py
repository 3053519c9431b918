"""Runs that break off: what they may have left in the states of a program.

An interrupt may come between any two operations of Python, but not while onnxruntime computes. So
each step that has been made is noted in one piece with the call that made it (`steps.called`), and
what is noted of a run that broke off decides what becomes of it:

all steps are made          it is over; only its results are lost
no state has been updated   it has not been, and may be made again
nothing has failed          the steps that are left are made before the interrupt goes on
something has               the updated states are torn: of no use until they have other values
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pef.states import States
from sambarun.linking.schedule import Overlaps

from .plan import Plan
from .steps import PlanStep


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
