"""Devices at work: what each gives is what the next one gets, and the last one's is the result.

A thread for each device runs microbatches as they come, so that devices overlap. In sequence, each
microbatch goes through all devices in the thread of the caller.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

from sambahost.channels import Channel, put
from sambahost.crew import FOREVER, Action, Actions, Crew

from .device import Device
from .errors import PyBudaError
from .microbatch import Microbatch, told

BETWEEN = 8
"""Microbatches that wait between two devices: more would take memory and gain no time."""


class DevicePipeline:
    """Devices in order, with what waits before each, and who does their work."""

    def __init__(
        self,
        devices: Sequence[Device],
        results: Sequence[queue.Queue[object]],
        dropped: Callable[[], None],
    ) -> None:
        """Let `get` of `results` raise what fails; `dropped` is called then."""
        self._devices = tuple(devices)
        self._ready = False
        later: list[Channel[Microbatch]] = [Channel(BETWEEN) for _ in self._devices[1:]]
        self._inputs = [self._devices[0].inputs, *later]
        names = [device.name for device in devices]
        self.crew = Crew(names, results, dropped, PyBudaError)

    def stop(self) -> None:
        """End all threads, after the microbatch that each is at; what they have not run is lost."""
        self.crew.stop()

    def _run(self, actions: Actions, in_sequence: bool) -> None:
        """Let threads do `actions` and return at once, or do them in sequence."""
        if in_sequence:
            self.crew.do(actions)
        else:
            self.crew.order(actions)


class Pipeline(DevicePipeline):
    """Devices in order, a queue of results, and threads from the first run that is not in sequence.

    `between` are queues of the program that get what each device gives to the next one.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        results: queue.Queue[object],
        between: Sequence[queue.Queue[object]] = (),
    ) -> None:
        super().__init__(devices, [results], devices[0].inputs.clear)
        self.results = results
        self._between = tuple(between)

    def compile_for(self, sample: Microbatch) -> None:
        """Make devices ready for microbatches like `sample`, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        following: Microbatch | None = sample
        for device in self._devices:
            if following is None or self._ready:
                break
            following = device.prepare(following)
        self._ready = True

    def forward(self, count: int, in_sequence: bool) -> None:
        """Run `count` microbatches, or all that will come for 0.

        Threads do it, and this returns at once; in sequence it returns when results are there.
        Raises `PyBudaError` if fewer were pushed then, and while threads run others.
        """
        if in_sequence:
            self.crew.require_idle()
            if count == FOREVER:
                raise PyBudaError("input_count is 0, for ever, which cannot be done in sequence")
            require_pushed(self._inputs[0], count, "microbatches")
        self._run(lambda: [Action(self._step, count, self._refresh)], in_sequence)

    def _refresh(self, index: int) -> None:
        self._devices[index].refresh()

    def _step(self, index: int) -> None:
        outputs = self._devices[index].run(self._inputs[index].get(self.crew.stopped))
        if index < len(self._between):
            kept = told(tensor.clone() for tensor in outputs)
            put(self._between[index], kept, self.crew.stopped)
        if index + 1 < len(self._devices):
            self._inputs[index + 1].put(Microbatch(outputs), self.crew.stopped)
        else:
            put(self.results, told(outputs), self.crew.stopped)


def require_pushed(waiting: Channel[Microbatch], count: int, what: str) -> None:
    """Raise `PyBudaError` if fewer than `count` of `what` wait: nobody would push them now."""
    there = waiting.size()
    if there < count:
        raise PyBudaError(f"{there} {what} were pushed, {count} are to run")
