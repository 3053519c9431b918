"""Steps of a plan that the host does itself: host kernels, and the reduction of gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import pef
from sambarun.arrays import Array
from sambarun.device.host_kernels import kernel_of
from sambarun.device.memory import Memory, TensorAt
from sambarun.linking.schedule import Unit


class Handle(Protocol):
    """A reduction under way."""

    def done(self) -> bool:
        """Return whether `wait` returns at once."""

    def wait(self) -> None:
        """Return when the buffer holds the result."""


class Reducer(Protocol):
    """Sums or averages gradients over the processes that train together."""

    def start(self, name: str, buffer: Array) -> Handle:
        """Begin to reduce gradient `name` in place; `buffer` is a view of device memory."""


@dataclass(slots=True)
class Clock:
    """How far training has come.

    `steps` are completed, `forwards` have begun since the seed of masks was last given; each draws
    dropout masks of its own.
    """

    steps: int = 0
    forwards: int = 0

    def take_from(self, other: Clock) -> None:
        """Show what another clock shows."""
        self.steps, self.forwards = other.steps, other.forwards


@dataclass(frozen=True)
class Host:
    """What the host adds to a plan."""

    clock: Clock = field(default_factory=Clock)
    reducer: Reducer | None = None


class KernelStep:
    """A host kernel and the memory it reads and writes.

    `private` are outputs that do not go to their planned address, which a linked session still
    needs for something else.
    """

    repeatable = True
    __slots__ = ("_clock", "_inputs", "_kernel", "_outputs", "_private", "kind", "unit")

    def __init__(
        self,
        row: pef.HostKernel,
        unit: Unit,
        memory: Memory,
        clock: Clock,
        private: Mapping[int, TensorAt],
    ) -> None:
        self.unit = unit
        self.kind = row.kind
        self._kernel = kernel_of(row)
        self._clock = clock
        self._private = private
        memory.values.update(private)
        self._inputs = [memory.view(symbol) for symbol in row.inputs]
        self._outputs = [
            memory.view(symbol) if symbol in private else memory.place(symbol)
            for symbol in row.outputs
        ]

    def attach(self, memory: Memory, symbol: int) -> None:
        """Nothing to do: all inputs are states."""

    def run(self, memory: Memory, done: list[object]) -> None:
        """Run the kernel for the step that the clock shows; add one entry to `done`."""
        self._kernel(self._inputs, self._outputs, self._clock.forwards)
        if self._private:
            memory.values.update(self._private)
        done.append(None)

    def keep(self, memory: Memory, result: object) -> None:
        """Nothing to do: outputs are where they belong."""
