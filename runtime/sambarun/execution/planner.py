"""The planner: where each symbol of a plan is passed, unit by unit, and the steps that do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pef
from pef import dtypes
from sambarun.arrays import Array, is_bindable
from sambarun.device.fitted import Fitted
from sambarun.device.memory import Memory, TensorAt, overlap, private
from sambarun.device.weights import static_shape
from sambarun.errors import RunError
from sambarun.linking.schedule import Unit
from sambarun.sessions.opening import IncompleteError
from sambarun.sessions.ports import Compiled

from .host_steps import Host, KernelStep
from .reductions import ReduceStep, UnderWay
from .steps import PlanStep, Wiring, choose_form, make_step


class Result(NamedTuple):
    """A result: its name, its symbol, and a view of its planned memory if it has such a place."""

    name: str
    symbol: int
    view: Array | None


class CannotLinkError(RunError):
    """A linked session of `sections` would write where it may still have to read.

    Or the provider can run some of them alone.
    """

    def __init__(self, sections: tuple[int, ...]) -> None:
        super().__init__(f"Sections {sections} cannot be linked.")
        self.sections = sections


class Planner:
    """Decides, unit by unit, where each symbol is passed, and makes the steps.

    With `aside` all results of sections become values outside of the planned memory. Those in
    `handed` are the caller's, computed in memory that is new in each run.
    """

    def __init__(
        self,
        fitted: Fitted,
        memory: Memory,
        host: Host,
        results: tuple[tuple[str, int], ...],
        *,
        aside: bool = False,
        handed: frozenset[int] = frozenset(),
    ) -> None:
        self.fitted = fitted
        self.states = fitted.states
        self.results = results
        self._memory = memory
        self._host = host
        self._symbols = fitted.program.symbols
        self.shared = memory.shared
        self._apart = _written_after(fitted.program, self.shared)
        self._wanted = frozenset(symbol for _, symbol in results)
        self._aside = aside
        self._handed = handed
        self._python: set[int] = set()
        self._around = {part: flat for flat, parts in fitted.states.packs.items() for part in parts}
        self._fixed: dict[int, TensorAt] = {}
        self.placed: dict[int, None] = {}
        self.valued: dict[int, None] = {}
        self.externals: dict[int, list[PlanStep]] = {}
        self.under_way = UnderWay()
        self.reads: set[int] = set()

    def steps(self, parts: Sequence[Unit]) -> tuple[PlanStep, ...]:
        """Return the steps that run `parts` in order."""
        return tuple(step for unit in parts for step in self._steps(unit, len(parts)))

    def result(self, name: str, symbol: int) -> Result:
        """Return how to read a result once the steps have run."""
        place = self._memory.tensor(symbol) if symbol in self.placed else None
        if place is None or dtypes.BY_NUMBER[place.dtype].bits < 8:
            return Result(name, symbol, None)
        return Result(name, symbol, place.view())

    def _steps(self, unit: Unit, count: int) -> Iterable[PlanStep]:
        """Yield the host kernels that make inputs of `unit`, and the step that runs it."""
        self._read_states(unit)
        if self.fitted.program.sections[unit.sections[0]].type is pef.SectionType.REDUCE:
            yield from self._reduction(unit)
            return
        for call, section in zip(unit.calls, unit.sections, strict=True):
            for row in self.fitted.kernels.get(section, ()):
                yield self._kernel(row, call, unit)
        yield self._step(unit, count)

    def _reduction(self, unit: Unit) -> Iterable[PlanStep]:
        if self._host.reducer is not None:
            names = [self._symbols[symbol].name for symbol in unit.inputs]
            step = ReduceStep(unit, names, self._host.reducer, self.under_way)
            self._take(step)
            yield step

    def _read_states(self, unit: Unit) -> None:
        for symbol in unit.inputs:
            if symbol in self.states.all:
                self._fixed[symbol] = self._memory.tensor(symbol)
                self.reads.update(self.states.packs.get(symbol, (symbol,)))

    def _kernel(self, row: pef.HostKernel, call: int, unit: Unit) -> PlanStep:
        """Return the step of a host kernel of `unit`.

        All inputs of a linked unit are needed at once, and before its outputs. What the plan puts
        in the same place for single sections gets memory of its own.
        """
        others = [self._fixed[s] for s in unit.inputs if s in self._fixed]
        if len(unit.calls) > 1:
            others += [self._memory.tensor(s) for s in unit.outputs if self._has_place(s)]
        apart = {}
        for symbol in row.outputs:
            place = self._memory.tensor(symbol)
            if any(overlap(place, other) for other in others):
                apart[symbol] = place = private(place)
            self._leave(symbol, place, planned=symbol not in apart)
            others.append(place)
        made = Unit((call,), (row.section,), row.inputs, (), row.outputs)
        return KernelStep(row, made, self._memory, self._host.clock, apart)

    def _step(self, unit: Unit, count: int) -> PlanStep:
        form = self._form(unit)
        bound = form is pef.CallForm.BOUND
        handed = self._handed.intersection(unit.outputs) if bound else frozenset[int]()
        wiring = Wiring(
            fixed={s: self._fixed[s] for s in unit.inputs if s in self._fixed},
            late=frozenset(s for s in unit.inputs if s in self.valued and s not in self._fixed),
            placed=self._places(unit) - handed if bound else handed,
            handed=handed,
        )
        step = make_step(form, unit, self._session(unit, count), self._memory, wiring)
        self._take(step)
        for symbol in unit.outputs:
            if symbol not in self.states.all and symbol not in handed:
                placed = symbol in wiring.placed
                self._leave(symbol, self._memory.tensor(symbol) if placed else None)
        if form is pef.CallForm.HOST:
            self._python.update(unit.outputs)
        return step

    def _session(self, unit: Unit, count: int) -> Compiled:
        try:
            return self.fitted.compile(unit, count)
        except IncompleteError as error:
            raise CannotLinkError(unit.sections) from error

    def _take(self, step: PlanStep) -> None:
        """Note which inputs of `step` come from outside."""
        for symbol in step.unit.inputs:
            if symbol not in self._fixed and symbol not in self.valued:
                self.externals.setdefault(symbol, []).append(step)

    def _leave(self, symbol: int, place: TensorAt | None, *, planned: bool = True) -> None:
        """Note that `symbol` is at `place` from now on, or a value if that is None."""
        self.placed.pop(symbol, None)
        self.valued.pop(symbol, None)
        self._fixed.pop(symbol, None)
        (self.placed if place and planned else self.valued)[symbol] = None
        if place:
            self._fixed[symbol] = place
        flat = self._around.get(symbol)
        if flat is not None and all(part in self.placed for part in self.states.packs[flat]):
            self._leave(flat, self._memory.tensor(flat))

    def _form(self, unit: Unit) -> pef.CallForm:
        """Return how to call `unit`.

        What cannot be bound crosses its border as a Python object if it comes from the caller or
        from a step of the host form, or if it is a result for the caller.
        """
        stored = pef.CallForm.BOUND
        if len(unit.sections) == 1:
            stored = self.fitted.program_of(unit.sections[0]).call_form
        python = {
            symbol
            for symbol in unit.inputs
            if symbol in self._python or not (symbol in self.placed or symbol in self.valued)
        }
        python.update(symbol for symbol in unit.outputs if symbol in self._wanted)
        return choose_form(self.fitted.program, unit, stored, python)

    def _places(self, unit: Unit) -> frozenset[int]:
        """Return the outputs of `unit` that go to their planned addresses.

        A linked unit may write an output before it has read all inputs, so that the memory of the
        two must differ, which the plan for single sections does not promise. Raises
        `CannotLinkError` for states and parts of packs, which cannot be anywhere else.
        """
        if self._aside:
            return frozenset()
        planned = [symbol for symbol in unit.outputs if self._has_place(symbol)]
        if len(unit.calls) == 1:
            return frozenset(planned)
        inputs = {s: self._read_at(s) for s in unit.inputs if s not in self.states.all}
        outputs = {s: self._memory.tensor(s) for s in planned if s not in self.states.all}
        clashing = _clashes({s: place for s, place in inputs.items() if place}, outputs)
        if any(symbol in self._around for symbol in clashing):
            raise CannotLinkError(unit.sections)
        return frozenset(planned).difference(clashing)

    def _read_at(self, symbol: int) -> TensorAt | None:
        """Return the memory from which an input may be read; None if it is not planned memory."""
        if symbol in self._fixed:
            return self._fixed[symbol]
        given = self._symbols[symbol].kind is pef.SymbolKind.INPUT
        outside = symbol in self.valued or given or not self._has_place(symbol)
        return None if outside else self._memory.tensor(symbol)

    def _has_place(self, index: int) -> bool:
        symbol = self._symbols[index]
        return (
            symbol.allocation is not None
            and index not in self._apart
            and static_shape(symbol) is not None
            and is_bindable(symbol.type)
        )


def _written_after(program: pef.Program, shared: Mapping[int, tuple[int, ...]]) -> frozenset[int]:
    """Return the outputs in `shared` that their graph must not write before it has ended.

    These are those whose memory it reads as an input.
    """
    found: set[int] = set()
    for graph in program.graphs if shared else ():
        given = {port.symbol for port in graph.inputs}
        taken = {port.symbol for port in graph.outputs if port.symbol in shared}
        found.update(symbol for symbol in taken - given if not given.isdisjoint(shared[symbol]))
    return frozenset(found)


def _clashes(inputs: Mapping[int, TensorAt], outputs: Mapping[int, TensorAt]) -> set[int]:
    """Return the outputs that share memory with an input or output that is another symbol."""
    places = sorted(
        ((place.address, symbol, place) for symbol, place in {**inputs, **outputs}.items()),
        key=lambda entry: entry[:2],
    )
    found: set[int] = set()
    for position, (_, symbol, place) in enumerate(places):
        for start, other, behind in places[position + 1 :]:
            if start >= place.address + place.owner.nbytes:
                break
            if overlap(place, behind):
                found.update((symbol, other))
    return found.intersection(outputs)
