"""Plans: a selection of calls turned into steps, ready to run again and again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pef
from pef import dtypes

from .arrays import Array, from_bytes, is_bindable
from .errors import RunError
from .image import Image
from .memory import Memory, overlap
from .schedule import Selection, Unit, select, units
from .steps import Step, Wiring, choose_form, make_step
from .weights import static_shape


class Result(NamedTuple):
    """A result: its name, its symbol, and a view of its planned memory if it has such a place."""

    name: str
    symbol: int
    view: Array | None


class Plan(NamedTuple):
    """Steps in order, and what they need and leave behind.

    `externals` pairs each input that no step produces with the steps that read it. `placed` are
    the symbols left at planned addresses, `valued` those left as values, `hidden` those that
    linked sections compute and keep to themselves, `produced` all three together without the
    externals. `results` are the outputs of the model if the steps compute any, else those of the
    sections.
    """

    steps: tuple[Step, ...]
    externals: tuple[tuple[int, tuple[Step, ...]], ...]
    placed: tuple[int, ...]
    valued: tuple[int, ...]
    hidden: tuple[int, ...]
    results: tuple[Result, ...]
    produced: frozenset[int]


def make_plan(image: Image, memory: Memory, chosen: Selection, link: bool) -> Plan:
    """Create the sessions for what `chosen` selects and bind them to `memory`.

    Sections that were asked for one by one run one by one, and keep their results outside of the
    planned memory, where nothing overwrites them. Raises `RunError` as `Image.compile` does.
    """
    calls = select(image.program, chosen)
    results = _results(image.program, calls, chosen)
    if link and not chosen.separate:
        parts = units(image.program, calls, {s for _, s in results}, image.joinable)
        if len(parts) < len(calls):
            try:
                return _bind(image, memory, parts, results, separate=False)
            except RunError:
                # onnxruntime folds constants across what were borders, and may then refuse a graph
                # whose parts it accepts. If the parts fail too, the error names the right one.
                return make_plan(image, memory, chosen, link=False)
    parts = units(image.program, calls, (), _never)
    return _bind(image, memory, parts, results, separate=chosen.separate)


def _bind(
    image: Image,
    memory: Memory,
    parts: Sequence[Unit],
    results: Sequence[tuple[str, int]],
    *,
    separate: bool,
) -> Plan:
    """Return the plan that runs `parts`."""
    planner = _Planner(image, memory, frozenset(symbol for _, symbol in results), separate)
    steps = planner.steps(parts)
    externals = _externals(steps)
    kept = {*planner.placed, *planner.valued}
    computed = _computed(image.program, (call for part in parts for call in part.calls))
    hidden = tuple(symbol for symbol in computed if symbol not in kept)
    return Plan(
        steps=steps,
        externals=externals,
        placed=tuple(planner.placed),
        valued=tuple(planner.valued),
        hidden=hidden,
        produced=frozenset(kept.union(hidden)).difference(symbol for symbol, _ in externals),
        results=tuple(planner.result(name, symbol) for name, symbol in results),
    )


def _never(section: int, following: int) -> bool:
    """No two sections may share a session."""
    del section, following
    return False


def _results(
    program: pef.Program, calls: Sequence[int], chosen: Selection
) -> tuple[tuple[str, int], ...]:
    """Return what a run of `calls` gives back, as pairs of name and symbol."""
    ports = tuple((port.name, port.symbol) for port in program.graphs[0].outputs)
    if chosen.everything:
        return ports
    computed = _computed(program, calls)
    named = tuple((name, symbol) for name, symbol in ports if symbol in computed)
    return named or tuple((program.symbols[symbol].name, symbol) for symbol in computed)


def _computed(program: pef.Program, calls: Iterable[int]) -> tuple[int, ...]:
    """Return the symbols that the sections at `calls` compute."""
    sections = (program.sections[program.schedule[call]] for call in calls)
    return tuple(dict.fromkeys(symbol for section in sections for symbol in section.outputs))


class _Planner:
    """Decides, unit by unit, where each symbol is passed, and makes the steps."""

    def __init__(
        self, image: Image, memory: Memory, wanted: frozenset[int], separate: bool
    ) -> None:
        self._image = image
        self._memory = memory
        self._symbols = image.program.symbols
        self._wanted = wanted
        self._separate = separate
        self._python: set[int] = set()
        self.placed: dict[int, None] = {}
        self.valued: dict[int, None] = {}

    def steps(self, parts: Sequence[Unit]) -> tuple[Step, ...]:
        """Return the steps that run `parts` in order."""
        return tuple(self._step(unit, len(parts)) for unit in parts)

    def result(self, name: str, symbol: int) -> Result:
        """Return how to read a result once the steps have run."""
        place = self._memory.tensor(symbol) if symbol in self.placed else None
        if place is None or dtypes.BY_NUMBER[place.dtype].bits < 8:
            return Result(name, symbol, None)
        return Result(name, symbol, from_bytes(place.owner, place.dtype, place.shape))

    def _step(self, unit: Unit, count: int) -> Step:
        compiled = self._image.compile(unit, count)
        form = self._form(unit)
        wiring = Wiring(
            fixed=frozenset(s for s in unit.inputs if s in self.placed),
            late=frozenset(s for s in unit.inputs if s in self.valued),
            placed=self._places(unit) if form is pef.CallForm.BOUND else frozenset(),
        )
        for symbol in unit.outputs:
            here, there = self.placed, self.valued
            if symbol not in wiring.placed:
                here, there = there, here
            there.pop(symbol, None)
            here[symbol] = None
        if form is pef.CallForm.HOST:
            self._python.update(unit.outputs)
        return make_step(form, unit, compiled, self._memory, wiring)

    def _form(self, unit: Unit) -> pef.CallForm:
        """Return how to call `unit`.

        What cannot be bound crosses its border as a Python object if it comes from the caller or
        from a step of the host form, or if it is a result for the caller.
        """
        stored = pef.CallForm.BOUND
        if len(unit.sections) == 1:
            stored = self._image.program_of(unit.sections[0]).call_form
        python = {
            symbol
            for symbol in unit.inputs
            if symbol in self._python or not (symbol in self.placed or symbol in self.valued)
        }
        python.update(symbol for symbol in unit.outputs if symbol in self._wanted)
        return choose_form(self._image.program, unit, stored, python)

    def _places(self, unit: Unit) -> frozenset[int]:
        """Return the outputs of `unit` that go to their planned addresses.

        A linked unit may write an output before it has read all inputs, so that the memory of the
        two must differ, which the plan for single sections does not promise.
        """
        if self._separate:
            return frozenset()
        planned = [symbol for symbol in unit.outputs if self._has_place(symbol)]
        if len(unit.calls) == 1:
            return frozenset(planned)
        inputs = [self._memory.tensor(s) for s in unit.inputs if s in self.placed]
        return frozenset(
            symbol
            for symbol in planned
            if not any(overlap(self._memory.tensor(symbol), other) for other in inputs)
        )

    def _has_place(self, index: int) -> bool:
        symbol = self._symbols[index]
        return (
            symbol.allocation is not None
            and static_shape(symbol) is not None
            and is_bindable(symbol.type)
        )


def _externals(steps: Iterable[Step]) -> tuple[tuple[int, tuple[Step, ...]], ...]:
    """Return each symbol that is read before any step produces it, with the steps that read it."""
    produced: set[int] = set()
    readers: dict[int, list[Step]] = {}
    for step in steps:
        for symbol in step.unit.inputs:
            if symbol not in produced:
                readers.setdefault(symbol, []).append(step)
        produced.update(step.unit.outputs)
    return tuple((symbol, tuple(found)) for symbol, found in readers.items())
