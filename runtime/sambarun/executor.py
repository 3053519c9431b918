"""The executable: a loaded program that runs on the caller's arrays."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from onnxruntime.capi import _pybind_state as ort

import pef

from .arrays import Array, at_address, from_bytes, is_bindable
from .errors import RunError
from .image import Image
from .inputs import Feeds, Inputs
from .memory import Memory, Tensor
from .plan import Plan, make_plan
from .profiler import Profile, Span, Stopwatch
from .schedule import Selection, selection
from .sessions import ORT_ERRORS, message_of
from .steps import Step

# What `run` accepts to say which sections are meant.
SectionTypes = Iterable[str | pef.SectionType]
_EVERYTHING = Selection()


class _Ready(NamedTuple):
    """A plan with its external inputs found and bound."""

    plan: Plan
    feeds: Feeds


class Executable:
    """A program in memory, made by `load`.

    One executable has one memory, so one run at a time: a second thread that calls `run` meanwhile
    gets a `RunError`. `clone` makes another executable that shares the sessions and the weights.
    The executable owns all memory its sessions use, and keeps the caller's arrays until the next
    run. It is a context manager; `close` gives back the memory.
    """

    def __init__(self, image: Image, link: bool) -> None:
        self._image = image
        self._link = link
        self._inputs = Inputs(image.program)
        self._memory = Memory(image.program)
        self._plans: dict[tuple[Selection, bool], Plan] = {}
        self._last: Plan | None = None
        self._defaults: dict[int, Tensor] = {}
        self._busy = threading.Lock()
        self._closed = False

    @property
    def program(self) -> pef.Program:
        """The program as the file describes it."""
        return self._image.program

    def prepare(
        self,
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
    ) -> None:
        """Do what the first `run` of the same sections would do before it computes anything."""
        with self._alone():
            chosen = selection(self.program, section_types, section_ids, calls)
            self._plan(chosen, self._link)
            self._image.checks.join()

    def run(
        self,
        inputs: Mapping[str, object],
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
        copy: bool = True,
    ) -> dict[str, Array]:
        """Run the schedule, or what is selected of it, and return the results by name.

        `inputs` holds a value for each of the model's inputs: an array of exactly the expected type
        and shape, a list for a sequence, None for an absent optional. Inputs with a default may be
        left out. `section_types` (`"FWD"`), `section_ids` and `calls` (positions in the schedule)
        select what to run; what selected sections read from others is taken from earlier runs, or
        from `inputs` by the name of the symbol.

        Returns the model's outputs that were computed, or the outputs of the selected sections if
        there are none among them. Arrays are the caller's own. With `copy=False` they may be views
        of the executable's memory, which the next run overwrites.

        Raises `RunError` for wrong inputs (all problems at once), for unknown sections, for damage
        in the file, and when onnxruntime fails.
        """
        with self._alone():
            chosen = _EVERYTHING
            if not (section_types is None and section_ids is None and calls is None):
                chosen = selection(self.program, section_types, section_ids, calls)
            ready = self._ready(inputs, chosen, self._link)
            with self._running(ready.plan):
                for step in ready.plan.steps:
                    self._run_step(step)
            self._image.checks.join()
            return self._results(ready, copy)

    def profile(
        self,
        inputs: Mapping[str, object],
        *,
        section_types: SectionTypes | None = None,
        section_ids: Iterable[int] | None = None,
        calls: Iterable[int] | None = None,
    ) -> Profile:
        """Run like `run`, section by section without linking, and measure each call.

        The first run of a section includes work that later ones do not have to repeat: profile an
        executable that has run before to see its usual speed.
        """
        with self._alone():
            chosen = selection(self.program, section_types, section_ids, calls)
            ready = self._ready(inputs, chosen, False)
            spans: list[Span] = []
            watch = Stopwatch()
            with self._running(ready.plan):
                for step in ready.plan.steps:
                    start = watch.now()
                    self._run_step(step)
                    spans.append(self._span(step, start, watch.now()))
            self._image.checks.join()
            return Profile(self._results(ready, True), tuple(spans))

    def clone(self) -> Executable:
        """Return an executable with memory of its own that shares sessions and weights."""
        self._check_open()
        return Executable(self._image.share(), self._link)

    def close(self) -> None:
        """Give back memory and sessions. Does nothing if already closed."""
        with self._alone(closing=True):
            if not self._closed:
                self._closed = True
                self._plans.clear()
                self._last = None
                self._memory = Memory(self.program)
                self._image.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @contextmanager
    def _alone(self, *, closing: bool = False) -> Iterator[None]:
        """Hold the executable's memory; nobody waits for it."""
        if not self._busy.acquire(blocking=False):
            raise RunError(
                "This executable is running in another thread; give each thread its own clone()."
            )
        try:
            if not closing:
                self._check_open()
            yield
        finally:
            self._busy.release()

    def _check_open(self) -> None:
        if self._closed:
            raise RunError("This executable has been closed; load the program again.")

    def _plan(self, chosen: Selection, link: bool) -> Plan:
        key = (chosen, link)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = make_plan(self._image, self._memory, chosen, link)
        return plan

    def _ready(self, inputs: Mapping[str, object], chosen: Selection, link: bool) -> _Ready:
        """Return the plan for `chosen` with `inputs` bound to it."""
        feeds = self._inputs.check(inputs)
        plan = self._plan(chosen, link)
        computed = [i for i in (*feeds.tensors, *feeds.values) if i in plan.produced]
        if computed:
            raise self._inputs.computed(computed, self._makers(computed))
        memory = self._memory
        memory.feeds = feeds.tensors
        for index, value in feeds.values.items():
            memory.values[index] = value
        missing = [symbol for symbol, _ in plan.externals if not self._available(symbol, feeds)]
        if missing:
            raise self._inputs.missing(missing, self._makers(missing))
        for symbol, steps in plan.externals:
            for step in steps:
                step.attach(memory, symbol)
        return _Ready(plan, feeds)

    def _available(self, index: int, feeds: Feeds) -> bool:
        """Tell whether an input that no step computes is there; a default counts."""
        if index in feeds.tensors or index in feeds.values:
            return True
        symbol = self.program.symbols[index]
        if symbol.kind is pef.SymbolKind.INPUT:
            self._memory.values.pop(index, None)
            if symbol.data is None:
                return symbol.type.startswith("optional(") and self._absent(index)
            feeds.tensors[index] = self._content(index)
            return True
        return self._memory.holds(index)

    def _absent(self, index: int) -> bool:
        """Make an optional input None."""
        self._memory.values[index] = None
        return True

    def _content(self, index: int) -> Tensor:
        """Return what the file holds for symbol `index`, as a tensor over the map."""
        found = self._defaults.get(index)
        if found is None:
            symbol = self.program.symbols[index]
            found = self._defaults[index] = self._image.content(symbol)
        return found

    def _makers(self, symbols: Iterable[int]) -> dict[int, str]:
        """Return what computes each of `symbols`."""
        wanted = set(symbols)
        return {
            symbol: f"section {index} '{section.name}'"
            for index, section in enumerate(self.program.sections)
            for symbol in section.outputs
            if symbol in wanted
        }

    @contextmanager
    def _running(self, plan: Plan) -> Iterator[None]:
        """Keep account of what is where in memory while `plan` runs."""
        try:
            yield
        except BaseException:
            self._last = None
            self._memory.forget(plan.placed)
            self._memory.forget(plan.valued)
            raise
        if plan is not self._last:
            self._memory.record(plan.placed)
            self._last = plan

    def _run_step(self, step: Step) -> None:
        try:
            step.run(self._memory)
        except ORT_ERRORS as error:
            what = self._image.describe(step.unit)
            raise RunError(f"{what} failed: {message_of(error)}") from error

    def _span(self, step: Step, start: int, end: int) -> Span:
        section = self.program.sections[step.unit.sections[0]]
        return Span(
            call=step.unit.calls[0],
            section=step.unit.sections[0],
            name=section.name,
            type=section.type.name,
            start=start,
            duration=end - start,
        )

    def _results(self, ready: _Ready, copy: bool) -> dict[str, Array]:
        return {name: self._result(symbol, copy) for name, symbol in ready.plan.results}

    def _result(self, index: int, copy: bool) -> Array:
        """Return symbol `index` as the caller gets it."""
        memory = self._memory
        symbol = self.program.symbols[index]
        if symbol.data is not None and index not in memory.feeds:
            found: object = self._content(index)
        else:
            found = memory.find(index)
        if isinstance(found, ort.OrtValue):
            return _to_array(found, symbol)
        if not isinstance(found, Tensor):
            return found  # type: ignore[return-value]  # a list, None or an array of strings
        raw = found.owner.reshape(-1).view(np.uint8)
        array = from_bytes(raw, found.dtype, found.shape)
        return np.array(array) if copy and np.shares_memory(array, raw) else array


def _to_array(value: ort.OrtValue, symbol: pef.Symbol) -> Array:
    """Return a copy of an onnxruntime value's tensor."""
    if not is_bindable(symbol.type):
        return np.array(value.numpy())
    raw = at_address(value.data_ptr(), value.tensor_size_in_bytes())
    return np.array(from_bytes(raw, symbol.dtype, value.shape()))
