"""Devices that infer: what each gives is what the next one gets, and the last one's is the result.

A thread for each device runs microbatches as they come, so that devices overlap. In sequence, each
microbatch goes through all devices in the thread of the caller.
"""

from __future__ import annotations

import queue
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .crew import FOREVER, Action, Channel, Crew, StoppedError, put
from .golden import GoldenRule
from .samples import Samples, Tensors
from .training_pipeline import BETWEEN, Api, Queue

_SOON = 0.001
"""Seconds after the last result for which others may be held while a microbatch is at hand."""


class RunningDevice(Protocol):
    """What a device does in inference."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def is_even(self) -> bool:
        """Whether a microbatch takes as long as another, and waits for nothing of the program."""

    def prepare(self, batch: Samples) -> Samples | None:
        """Make ready for microbatches like this; return what it gives, None if that is unknown."""

    def infer(self, batch: Samples) -> Tensors:
        """Return the outputs for a microbatch."""

    def verify(self, batch: Samples, found: Tensors, rule: GoldenRule) -> None:
        """Raise `AssertionError` where the outputs for a microbatch are not near torch's."""

    def refresh(self) -> None:
        """See to it that runs from now on use the parameters that modules have now."""


@dataclass(frozen=True)
class InferenceQueues:
    """Queues of the program: of results, of what goes between devices, and of what these `keep`."""

    results: Queue
    between: Sequence[Queue]
    kept: Queue


class InferencePipeline:
    """Devices in order, and the queues of the program; microbatches come out of `inputs`.

    What a device gives is compared with what torch gives by `rule`, if there is one.
    """

    def __init__(
        self,
        devices: Sequence[RunningDevice],
        inputs: Channel[Samples],
        queues: InferenceQueues,
        api: Api,
        rule: GoldenRule | None = None,
    ) -> None:
        self.queues = queues
        self._devices = tuple(devices)
        self._api = api
        self._ready = False
        self._compiled: Callable[[], None] | None = api.compiled
        self._rule = rule
        self._held: deque[object] = deque()
        self._handed = 0.0
        self._may_hold = rule is None and devices[-1].is_even
        later: list[Channel[Samples]] = [Channel(BETWEEN) for _ in devices[1:]]
        self._inputs = [inputs, *later]
        names = [device.name for device in devices]
        self.crew = Crew(names, [queues.results, queues.kept], inputs.clear, api.raises)

    def compile_for(self, sample: Samples) -> None:
        """Make devices ready for microbatches like `sample`, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        following: Samples | None = sample
        for device in self._devices:
            if following is None or self._ready:
                break
            following = device.prepare(following)
        if following is not None:
            self._tell()
        self._ready = True

    def forward(self, count: int, in_sequence: bool, only: int | None = None) -> None:
        """Run `count` microbatches, or all that will come for 0, on all devices or `only` one.

        Threads do it, and this returns at once; in sequence it returns when results are there.
        Raises an error if fewer were pushed then, and while threads run others.
        """
        if in_sequence:
            self.crew.require_idle()
            if count == FOREVER:
                raise self._api.raises(
                    "input_count is 0, for ever, which cannot be done in sequence"
                )
            self._inputs[only or 0].require(count, "microbatches", self._api.raises)
        step = partial(self._step, waits=only is None)
        action = Action(step, count, self._refresh, end=self._end)
        self.crew.begin(lambda: [action], in_sequence, only)

    def position(self, name: str) -> int | None:
        """Return the index of a device, None where it is none of these."""
        names = [device.name for device in self._devices]
        return names.index(name) if name in names else None

    def _refresh(self, index: int) -> None:
        self._devices[index].refresh()

    def _step(self, index: int, waits: bool) -> None:
        stopped, device = self.crew.stopped, self._devices[index]
        batch = self._inputs[index].get(stopped)
        outputs = device.infer(batch)
        if self._rule is not None:
            device.verify(batch, outputs, self._rule)
        if index < len(self.queues.between):
            kept = self._api.told(tensor.clone() for tensor in outputs)
            put(self.queues.between[index], kept, stopped)
        if index + 1 < len(self._devices):
            self._inputs[index + 1].put(self._api.samples(outputs), stopped, waits=waits)
        else:
            self._tell()
            self._give(self._api.told(outputs))

    def _give(self, result: object) -> None:
        """Put a result into the queue, or hold it for a moment if the next microbatch is there.

        Who waits for results takes a core from a device each time that it is woken.
        """
        self._held.append(result)
        now = time.monotonic()
        if not self._may_hold or now - self._handed >= _SOON or not self._inputs[-1].size():
            self._handed = now
            self._hand_over()

    def _hand_over(self) -> None:
        while self._held:
            put(self.queues.results, self._held[0], self.crew.stopped)
            self._held.popleft()

    def _end(self, index: int) -> None:
        """Let the last device hold nothing more; where all ends, as far as there is room."""
        if index + 1 < len(self._devices):
            return
        try:
            self._hand_over()
        except StoppedError:
            with suppress(queue.Full):
                while self._held:
                    self.queues.results.put(self._held[0], block=False)
                    self._held.popleft()

    def _tell(self) -> None:
        """Tell once that all devices are compiled."""
        told, self._compiled = self._compiled, None
        if told is not None:
            told()
