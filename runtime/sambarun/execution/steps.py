"""Steps: the three ways to call a unit's session.

`BoundStep` has its inputs and outputs bound to memory once and is little more than one call into
onnxruntime. `ValuesStep` passes onnxruntime values from step to step, for sequences.
`HostStep` takes and gives Python objects, for what only Python can make or read: strings, lists,
None.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

import numpy as np
from onnxruntime.capi import _pybind_state as ort

import pef
from pef import dtypes
from sambarun.arrays import is_bindable
from sambarun.device.memory import Memory, TensorAt
from sambarun.linking.schedule import Unit
from sambarun.sessions.ports import Compiled
from sambarun.sessions.provider import copied_inputs

Values = Sequence[object]
_PAGE = 4096


class Wiring(NamedTuple):
    """How a unit's symbols are passed.

    `fixed` inputs are tensors that stay where they are, `late` ones are values that an earlier step
    makes; all others come from outside and are attached. `placed` outputs go to their planned
    addresses, `handed` ones to memory that becomes the caller's, all others become values.
    """

    fixed: Mapping[int, TensorAt]
    late: frozenset[int]
    placed: frozenset[int]
    handed: frozenset[int]


class PlanStep(Protocol):
    """One unit, ready to run; `kind` is that of a host kernel, empty for sections.

    `repeatable` tells whether a run of it that was interrupted may be made anew.
    """

    unit: Unit
    kind: str
    repeatable: bool

    def attach(self, memory: Memory, symbol: int) -> None:
        """Take an input that no step of the plan produces from where it is now."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run the unit: inputs from memory, outputs to memory; add one entry to `done`."""

    def keep(self, memory: Memory, result: object) -> None:
        """Keep what a run gave, of which `done` has `result`; a second time does no harm."""


def choose_form(
    program: pef.Program, unit: Unit, stored: pef.CallForm, python: Collection[int]
) -> pef.CallForm:
    """Return how to call `unit`, at least as strict as `stored`.

    `python` are the symbols that are, or have to become, Python objects if they cannot be bound.
    Optionals always do: onnxruntime crashes when it is handed an empty one as a value of its own.
    """
    types = {symbol: program.symbols[symbol].type for symbol in unit.inputs + unit.outputs}
    crossing = [symbol for symbol, spelling in types.items() if not is_bindable(spelling)]
    if stored is pef.CallForm.HOST or any(
        symbol in python or dtypes.is_optional(types[symbol]) for symbol in crossing
    ):
        return pef.CallForm.HOST
    return pef.CallForm.VALUES if crossing else stored


def make_step(
    form: pef.CallForm, unit: Unit, compiled: Compiled, memory: Memory, wiring: Wiring
) -> PlanStep:
    """Return the step that calls `unit` in the given form."""
    if form is pef.CallForm.BOUND:
        return BoundStep(unit, compiled, memory, wiring)
    if form is pef.CallForm.VALUES:
        return ValuesStep(unit, compiled)
    return HostStep(unit, compiled)


def called(done: list[object], function: Callable[..., object], *arguments: object) -> None:
    """Note in `done` what `function` returns.

    Between the end of a function that is not Python's own and the note there is no operation of
    Python, so that no interrupt can come between them.
    """
    done.extend(map(function, *((argument,) for argument in arguments)))


class BoundStep:
    """A step whose inputs and outputs are bound to addresses."""

    kind = ""
    repeatable = True
    __slots__ = (
        "_again",
        "_binding",
        "_bound",
        "_copied",
        "_device",
        "_formal",
        "_handed",
        "_late",
        "_options",
        "_outputs",
        "_placed",
        "_results",
        "_run",
        "_session",
        "unit",
    )

    def __init__(self, unit: Unit, compiled: Compiled, memory: Memory, wiring: Wiring) -> None:
        self.unit = unit
        self._session = compiled.session
        raw = compiled.session._sess
        self._run: Callable[[object, object], None] = raw.run_with_iobinding
        self._options: object = memory.provider.learning
        self._device = device = memory.provider.device
        self._binding = ort.SessionIOBinding(raw)
        self._formal = dict(zip(unit.inputs, compiled.inputs, strict=True))
        self._bound: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._copied = copied_inputs(compiled.session, memory.provider)
        self._again: dict[int, TensorAt] = {}
        self._late = tuple((s, self._formal[s]) for s in unit.inputs if s in wiring.late)
        self._outputs = list(compiled.outputs)
        self._placed: list[TensorAt] = []
        self._results: list[tuple[int, int, str]] = []
        self._handed: list[tuple[int, str]] = []
        for symbol in unit.inputs:
            if symbol in wiring.fixed:
                self._bind_tensor(symbol, wiring.fixed[symbol])
        for position, (symbol, name) in enumerate(zip(unit.outputs, compiled.outputs, strict=True)):
            if symbol in wiring.placed:
                place = memory.tensor(symbol)
                self._placed.append(place)
                self._binding.bind_output(name, device, place.dtype, place.shape, place.address)
            elif symbol in wiring.handed:
                self._handed.append((symbol, name))
            else:
                self._binding.bind_output(name, device)
                self._results.append((symbol, position, name))

    def attach(self, memory: Memory, symbol: int) -> None:
        """Bind an external input to where it is now, if that is not where it was."""
        found = memory.feeds.get(symbol) or memory.find(symbol)  # mostly it was given
        if isinstance(found, TensorAt):
            if self._bound.get(symbol) != (found.address, found.shape):
                self._bind_tensor(symbol, found)
        else:
            self._bound.pop(symbol, None)
            self._again.pop(symbol, None)
            self._binding.bind_ortvalue_input(self._formal[symbol], memory.ort_value(symbol))

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run the unit: inputs from memory, outputs to memory; add one entry to `done`."""
        for symbol, name in self._late:
            self._binding.bind_ortvalue_input(name, memory.ort_value(symbol))
        for symbol, tensor in self._again.items():
            self._bind_input(symbol, tensor)
        for _, _, name in self._results:
            # Anew for each run: a binding holds on to the last result and would write over it.
            self._binding.bind_output(name, self._device)
        for symbol, name in self._handed:
            at = memory.hand(symbol)
            self._binding.bind_output(name, self._device, at.dtype, at.shape, at.address)
        done.extend(map(self._run, (self._binding,), (self._options,)))  # as `called`, but quick
        self._options = None
        self.keep(memory, None)

    def rehearse(self, memory: Memory) -> None:
        """Run the unit and throw away what it gives."""
        feeds = {name: memory.ort_value(symbol) for symbol, name in self._formal.items()}
        self._session._sess.run_with_ort_values(feeds, self._outputs, self._options)
        self._options = None
        for place in self._placed:
            pages = place.owner.reshape(-1).view(np.uint8)[::_PAGE]
            pages[:] = pages.copy()  # as they are: an operating system gives a page when written

    def keep(self, memory: Memory, result: object) -> None:
        """Keep the outputs that have no planned place."""
        del result
        if self._results:
            outputs = self._binding.get_outputs()
            for symbol, position, _ in self._results:
                memory.values[symbol] = outputs[position]

    def _bind_tensor(self, symbol: int, tensor: TensorAt) -> None:
        self._bound.pop(symbol, None)  # it must never name an address that is not bound
        if self._formal[symbol] in self._copied:
            self._again[symbol] = tensor
        else:
            self._bind_input(symbol, tensor)
        self._bound[symbol] = (tensor.address, tensor.shape)

    def _bind_input(self, symbol: int, tensor: TensorAt) -> None:
        self._binding.bind_input(
            self._formal[symbol], self._device, tensor.dtype, tensor.shape, tensor.address
        )


class ValuesStep:
    """A step that takes and gives onnxruntime values."""

    kind = ""
    repeatable = True
    __slots__ = ("_inputs", "_outputs", "_session", "unit")

    def __init__(self, unit: Unit, compiled: Compiled) -> None:
        self.unit = unit
        self._session = compiled.session._sess
        self._inputs = tuple(zip(unit.inputs, compiled.inputs, strict=True))
        self._outputs = list(compiled.outputs)

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: inputs are looked up when the step runs."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run the unit: inputs from memory, outputs to memory; add one entry to `done`."""
        feeds = {name: memory.ort_value(symbol) for symbol, name in self._inputs}
        called(done, self._session.run_with_ort_values, feeds, self._outputs, None)
        self.keep(memory, done[-1])

    def rehearse(self, memory: Memory) -> None:
        """Run the unit and throw away what it gives."""
        feeds = {name: memory.ort_value(symbol) for symbol, name in self._inputs}
        self._session.run_with_ort_values(feeds, self._outputs, None)

    def keep(self, memory: Memory, result: object) -> None:
        """Keep the outputs."""
        memory.values.update(zip(self.unit.outputs, cast("Values", result), strict=True))


class HostStep:
    """A step that takes and gives Python objects."""

    kind = ""
    repeatable = True
    __slots__ = ("_inputs", "_outputs", "_session", "unit")

    def __init__(self, unit: Unit, compiled: Compiled) -> None:
        self.unit = unit
        self._session = compiled.session
        self._inputs = tuple(zip(unit.inputs, compiled.inputs, strict=True))
        self._outputs = list(compiled.outputs)

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: inputs are looked up when the step runs."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run the unit: inputs from memory, outputs to memory; add one entry to `done`."""
        feeds = {name: memory.host_value(symbol) for symbol, name in self._inputs}
        called(done, self._session.run, self._outputs, feeds)
        self.keep(memory, done[-1])

    def rehearse(self, memory: Memory) -> None:
        """Run the unit and throw away what it gives."""
        feeds = {name: memory.host_value(symbol) for symbol, name in self._inputs}
        self._session.run(self._outputs, feeds)

    def keep(self, memory: Memory, result: object) -> None:
        """Keep the outputs."""
        memory.values.update(zip(self.unit.outputs, cast("Values", result), strict=True))


REHEARSALS = 2
"""Runs of a session before it is as quick as ever.

onnxruntime learns in the first how much memory it needs, and touches that for the first time in the
second.
"""


def rehearse(step: PlanStep, memory: Memory) -> None:
    """Run a session for nothing, so that what follows is a run like any other.

    What the host does itself is left out: it takes no longer the first time, and may happen once.
    """
    if isinstance(step, BoundStep | ValuesStep | HostStep):
        for _ in range(REHEARSALS):
            step.rehearse(memory)
