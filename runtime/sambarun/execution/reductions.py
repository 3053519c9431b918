"""REDUCE sections in a plan: when reductions begin, and what waits for them.

none      the sections are left out
normal    all reductions begin when the backward pass has ended, and are over before what follows
inorder   each begins at its place in the schedule, and what reads its gradients waits for it
optimal   the same, and of the sections behind the last one those run first whose gradients have
          arrived
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pef
from pef.states import States
from sambarun.device.memory import Memory, TensorAt, overlap
from sambarun.device.weights import static_shape
from sambarun.linking.schedule import Overlaps, Unit
from sambarun.selection import Reduction

from .host_steps import Handle, Reducer
from .steps import PlanStep


class UnderWay:
    """Reductions that have begun, by the symbol of the gradient."""

    def __init__(self) -> None:
        self._handles: dict[int, Handle] = {}

    def add(self, symbol: int, handle: Handle) -> None:
        """Note that the reduction of `symbol` has begun."""
        self._handles[symbol] = handle

    def arrived(self, symbols: Collection[int]) -> bool:
        """Return whether nothing of `symbols` has to be waited for."""
        handles = self._handles
        return all(handles[symbol].done() for symbol in symbols if symbol in handles)

    def wait_for_one(self, symbols: Collection[int]) -> None:
        """Return when the one of `symbols` whose reduction began first holds its result."""
        self.wait([symbol for symbol in self._handles if symbol in symbols][:1])

    def wait(self, symbols: Collection[int]) -> None:
        """Return when all of `symbols` hold the results."""
        for symbol in symbols:
            handle = self._handles.get(symbol)
            if handle is not None:
                handle.wait()
                self._handles.pop(symbol, None)  # an interrupted wait can be made anew


class ReduceStep:
    """A REDUCE section: its reductions begin; `WaitStep` and `ArrivalStep` end them."""

    __slots__ = ("_names", "_reducer", "_under_way", "unit")

    kind = ""
    repeatable = False

    def __init__(
        self, unit: Unit, names: Sequence[str], reducer: Reducer, under_way: UnderWay
    ) -> None:
        self.unit = unit
        self._names = tuple(zip(names, unit.inputs, strict=True))
        self._reducer = reducer
        self._under_way = under_way

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: gradients are looked up when the step runs."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Begin to reduce the gradients where they are; add one entry to `done`."""
        self._under_way.wait(self.unit.inputs)  # after a run that did not come to its end
        for name, symbol in self._names:
            self._under_way.add(symbol, self._reducer.start(name, memory.view(symbol)))
        done.append(None)

    def keep(self, memory: Memory, result: object) -> None:
        """Nothing to do: gradients stay where they are."""


class WaitStep:
    """The host waits for reductions."""

    __slots__ = ("_under_way", "unit")

    kind = "wait"
    repeatable = True

    def __init__(self, unit: Unit, under_way: UnderWay) -> None:
        self.unit = unit
        self._under_way = under_way

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: gradients stay where they are."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Return when the gradients hold the results; add one entry to `done`."""
        self._under_way.wait(self.unit.inputs)
        done.append(None)

    def keep(self, memory: Memory, result: object) -> None:
        """Nothing to do: gradients stay where they are."""


@dataclass(frozen=True)
class _Reduction:
    """A step that may wait: the gradients it reads, and earlier steps it must not overtake."""

    step: PlanStep
    needs: tuple[int, ...]
    after: frozenset[int]


class ArrivalStep:
    """Steps that run in the order in which their gradients arrive.

    Where none can run, the host waits for one gradient alone, and looks again: what another step
    needs may be there before the others that the first one needs.
    """

    __slots__ = ("_tasks", "_under_way", "unit")

    kind = ""
    repeatable = False

    def __init__(self, tasks: Sequence[_Reduction], under_way: UnderWay) -> None:
        self.unit = _joined([task.step.unit for task in tasks])
        self._tasks = tuple(tasks)
        self._under_way = under_way

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: the steps themselves are attached."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run all steps, each when its gradients have arrived; add one entry to `done`."""
        left = dict(enumerate(self._tasks))
        while left:
            free = [number for number, task in left.items() if task.after.isdisjoint(left)]
            number = next((n for n in free if self._under_way.arrived(left[n].needs)), None)
            if number is None:
                self._under_way.wait_for_one({s for n in free for s in left[n].needs})
                continue
            task = left.pop(number)
            self._under_way.wait(task.needs)
            task.step.run(memory, [])
        done.append(None)

    def keep(self, memory: Memory, result: object) -> None:
        """Nothing to do: the steps themselves do it."""


def arranged(program: pef.Program, calls: Sequence[int], reduction: Reduction) -> tuple[int, ...]:
    """Return `calls` in the order in which to run them, without those that are left out."""
    reduces = [call for call in calls if is_reduction(program, call)]
    if not reduces or reduction in ("inorder", "optimal"):
        return tuple(calls)
    others = [call for call in calls if not is_reduction(program, call)]
    if reduction == "none":
        return tuple(others)
    before = [call for call in others if call < reduces[-1]]
    return (*before, *reduces, *others[len(before) :])


def is_reduction(program: pef.Program, call: int) -> bool:
    """Return whether `call` is that of a REDUCE section."""
    return program.sections[program.schedule[call]].type is pef.SectionType.REDUCE


def waiting_for(program: pef.Program, states: States) -> Mapping[int, frozenset[int]]:
    """Return which REDUCE sections each section has to wait for, those that wait for some."""
    overlaps = Overlaps(states)
    reduces = {
        number: overlaps.touched(section.inputs)
        for number, section in enumerate(program.sections)
        if section.type is pef.SectionType.REDUCE
    }
    found = {
        number: frozenset(
            other for other, symbols in reduces.items() if not symbols.isdisjoint(section.inputs)
        )
        for number, section in enumerate(program.sections)
        if number not in reduces and section.type is not pef.SectionType.BCKWD
    }
    return {number: others for number, others in found.items() if others}


@dataclass(frozen=True)
class Uses:
    """What units touch: `overlaps` knows packs, `memory` where symbols are."""

    program: pef.Program
    memory: Memory
    overlaps: Overlaps

    def touched(self, unit: Unit) -> set[int]:
        """Return all that shares memory with what `unit` reads or writes."""
        return self.overlaps.touched((*unit.inputs, *unit.outputs))

    def conflict(self, earlier: Unit, later: Unit) -> bool:
        """Return whether the two must keep their order: one writes what the other uses."""
        return self._meet(earlier.outputs, (*later.inputs, *later.outputs)) or self._meet(
            earlier.inputs, later.outputs
        )

    def _meet(self, some: Sequence[int], others: Sequence[int]) -> bool:
        if not set(some).isdisjoint(others):
            return True
        places = [*self._places(others)]
        return any(overlap(mine, other) for mine in self._places(some) for other in places)

    def _places(self, symbols: Sequence[int]) -> Iterator[TensorAt]:
        for index in symbols:
            symbol = self.program.symbols[index]
            if symbol.allocation is not None and static_shape(symbol) is not None:
                yield self.memory.tensor(index)


def with_waits(
    steps: Sequence[PlanStep], uses: Uses, reduction: Reduction, way: UnderWay
) -> tuple[PlanStep, ...]:
    """Return `steps` with those that end reductions, as the mode `reduction` wants."""
    places = [place for place, step in enumerate(steps) if isinstance(step, ReduceStep)]
    if not places:
        return tuple(steps)
    if reduction != "optimal":
        return tuple(_in_order(steps, uses, way, at_once=reduction == "normal"))
    first = places[-1] + 1
    waited = [*_in_order(steps[:first], uses, way, at_once=False)]
    end = waited.pop()  # the wait for all that is left comes behind the others
    rest = steps[first:]
    if not rest:
        return (*waited, end)
    return (*waited, ArrivalStep(_tasks(rest, end.unit.inputs, uses), way), end)


def _in_order(
    steps: Sequence[PlanStep], uses: Uses, way: UnderWay, *, at_once: bool
) -> Iterator[PlanStep]:
    """Yield `steps`, before each a wait for what it reads, or for everything if `at_once`."""
    begun: dict[int, Unit] = {}
    for step in steps:
        if isinstance(step, ReduceStep):
            begun |= dict.fromkeys(step.unit.inputs, step.unit)
        elif begun:
            touched = uses.touched(step.unit)
            needed = {s: unit for s, unit in begun.items() if at_once or s in touched}
            if needed:
                yield WaitStep(_waiting(needed), way)
            begun = {s: unit for s, unit in begun.items() if s not in needed}
        yield step
    if begun:
        yield WaitStep(_waiting(begun), way)


def _waiting(needed: Mapping[int, Unit]) -> Unit:
    return next(iter(needed.values()))._replace(inputs=tuple(needed))


def _joined(units: Sequence[Unit]) -> Unit:
    """Return what stands for all `units` in messages."""
    return Unit(
        tuple(call for unit in units for call in unit.calls),
        tuple(section for unit in units for section in unit.sections),
        (),
        (),
        tuple(symbol for unit in units for symbol in unit.outputs),
    )


def _tasks(steps: Sequence[PlanStep], begun: Sequence[int], uses: Uses) -> list[_Reduction]:
    """Return `steps` with what each reads of the reductions that have `begun`."""
    tasks: list[_Reduction] = []
    for step in steps:
        touched = uses.touched(step.unit)
        after = frozenset(
            number for number, task in enumerate(tasks) if uses.conflict(task.step.unit, step.unit)
        )
        tasks.append(_Reduction(step, tuple(s for s in begun if s in touched), after))
    return tasks
