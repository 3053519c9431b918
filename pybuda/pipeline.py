"""Devices at work: what each gives is what the next one gets, and the last one's is the result.

A thread for each device runs microbatches as they come, so that devices overlap. In sequence, each
microbatch goes through all devices in the thread of the caller.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence

from sambahost.crew import FOREVER, Action, Channel, Crew, put
from sambahost.samples import Samples
from sambahost.training_pipeline import BETWEEN

from .config import compiler
from .device import Device
from .errors import PyBudaError
from .microbatch import Microbatch, told
from .verifying import VerifyConfig


class Pipeline:
    """Devices in order, a queue of results, and threads from the first run that is not in sequence.

    `between` are queues of the program that get what each device gives to the next one. What a
    device gives is compared with what torch gives as `verified` says.
    """

    def __init__(
        self,
        devices: Sequence[Device],
        results: queue.Queue[object],
        between: Sequence[queue.Queue[object]] = (),
        verified: VerifyConfig | None = None,
    ) -> None:
        self._devices = tuple(devices)
        self._ready = False
        later: list[Channel[Samples]] = [Channel(BETWEEN) for _ in devices[1:]]
        self._inputs = [devices[0].inputs, *later]
        names = [device.name for device in devices]
        self.crew = Crew(names, [results], devices[0].inputs.clear, PyBudaError)
        self.results = results
        self._verified = verified
        self._between = tuple(between)

    def compile_for(self, sample: Samples) -> None:
        """Make devices ready for microbatches like `sample`, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        following: Samples | None = sample
        for device in self._devices:
            if following is None or self._ready:
                break
            following = device.prepare(following)
        if following is not None and not self._ready:
            compiler().tell_idle()
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
            self._inputs[0].require(count, "microbatches", PyBudaError)
        self.crew.begin(lambda: [Action(self._step, count, self._refresh)], in_sequence)

    def _refresh(self, index: int) -> None:
        self._devices[index].refresh()

    def _step(self, index: int) -> None:
        batch = self._inputs[index].get(self.crew.stopped)
        outputs = self._devices[index].run(batch)
        if self._verified is not None:
            self._devices[index].verify(batch, outputs, self._verified)
        if index < len(self._between):
            kept = told(tensor.clone() for tensor in outputs)
            put(self._between[index], kept, self.crew.stopped)
        if index + 1 < len(self._devices):
            self._inputs[index + 1].put(Microbatch(outputs), self.crew.stopped)
        else:
            compiler().tell_idle()
            put(self.results, told(outputs), self.crew.stopped)
