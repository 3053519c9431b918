"""Devices at work: what each gives is what the next one gets, and the last one's is the result.

A thread for each device runs microbatches as they come, so that devices overlap. In sequence, each
microbatch goes through all devices in the thread of the caller.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence

import torch

from .context import PipelineDevice
from .errors import PyBudaError
from .microbatch import Microbatch
from .queues import Channel, StoppedError, let_fail, put
from .tensor import Tensor

_BETWEEN = 8
"""Microbatches that wait between two devices: more would take memory and gain no time."""
FOREVER = 0


class Pipeline:
    """Devices in order, a queue of results, and threads from the first run that is not in sequence.

    `between` are queues of the program that get what each device gives to the next one.
    """

    def __init__(
        self,
        devices: Sequence[PipelineDevice],
        results: queue.Queue[object],
        between: Sequence[queue.Queue[object]] = (),
    ) -> None:
        self.results = results
        self.error: BaseException | None = None
        self._devices = tuple(devices)
        self._between = tuple(between)
        self._stopped = threading.Event()
        self._commanded = self._done = 0
        self._forever = self._ready = False
        self._commands: list[Channel[int]] = [Channel() for _ in devices]
        later: list[Channel[Microbatch]] = [Channel(_BETWEEN) for _ in self._devices[1:]]
        self._inputs = [self._devices[0].inputs, *later]
        self._threads: list[threading.Thread] = []
        let_fail(results, self._ended)

    def compile_for(self, sample: Microbatch) -> None:
        """Make devices ready for microbatches like `sample`, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        if self._ready:
            return
        for device in self._devices:
            following = device.prepare(sample)
            if following is None:
                break
            sample = following
        self._ready = True

    def forward(self, count: int) -> None:
        """Begin to run `count` microbatches, or all that will come for 0; return at once."""
        self.require_well()
        if not self._threads:
            self._threads = [
                threading.Thread(target=self._work, args=(index,), daemon=True, name=device.name)
                for index, device in enumerate(self._devices)
            ]
            for thread in self._threads:
                thread.start()
        self._commanded += count
        self._forever |= count == FOREVER
        for channel in self._commands:
            channel.add(count)

    def forward_in_sequence(self, count: int) -> None:
        """Run `count` microbatches that were pushed, and return when their results are there.

        Raises `PyBudaError` if fewer were, and while threads run others.
        """
        self.require_well()
        if count == FOREVER:
            raise PyBudaError("input_count is 0, for ever, which cannot be done in sequence")
        if self._is_busy():
            raise PyBudaError("microbatches are running; get their results before others")
        batches = [batch for _ in range(count) if (batch := self._inputs[0].take()) is not None]
        if len(batches) < count:
            for batch in batches:
                self._inputs[0].add(batch)
            raise PyBudaError(f"{len(batches)} microbatches were pushed, {count} are to run")
        for device in self._devices:
            device.refresh()
        for batch in batches:
            put(self.results, _outputs(self.through(batch)), self._stopped)

    def through(self, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        """Return what a microbatch becomes in all devices, one after the other."""
        for index in range(len(self._devices)):
            batch = Microbatch(self._run(index, batch))
        return batch.tensors

    def require_well(self) -> None:
        """Raise `PyBudaError` if a device has failed."""
        if self.error is not None:
            raise PyBudaError(
                f"the pipeline has failed ({self.error}); initialize it again"
            ) from self.error

    def stop(self) -> None:
        """End all threads, after the microbatch that each is at; what they have not run is lost."""
        busy = self._is_busy()
        self._stopped.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if busy:
            self._inputs[0].clear()

    def _is_busy(self) -> bool:
        return bool(self._threads) and (self._forever or self._done < self._commanded)

    def _ended(self) -> Exception | None:
        """Return why no more results come, None if more may."""
        if not self._stopped.is_set():
            return None
        ended = PyBudaError("the pipeline was ended before all of its results were there")
        return self.error if isinstance(self.error, Exception) else ended

    def _work(self, index: int) -> None:
        """Do what a thread does: wait for commands, and run as many microbatches as they say."""
        try:
            while True:
                count = self._commands[index].get(self._stopped)
                self._devices[index].refresh()
                done = 0
                while count == FOREVER or done < count:
                    self._step(index)
                    done += 1
        except StoppedError:
            return
        except BaseException as error:  # it goes to who waits for results, whatever it is
            self.error = error
            self._stopped.set()
            self._inputs[0].clear()

    def _step(self, index: int) -> None:
        outputs = self._run(index, self._inputs[index].get(self._stopped))
        if index + 1 < len(self._devices):
            self._inputs[index + 1].put(Microbatch(outputs), self._stopped)
        else:
            put(self.results, _outputs(outputs), self._stopped)
            self._done += 1

    def _run(self, index: int, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        outputs = self._devices[index].run(batch)
        if index < len(self._between):
            kept = _outputs([tensor.clone() for tensor in outputs])
            put(self._between[index], kept, self._stopped)
        return outputs


def _outputs(tensors: Sequence[torch.Tensor]) -> object:
    return [Tensor(tensor) for tensor in tensors]
