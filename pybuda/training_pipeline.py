"""Devices that train: microbatches go forward through them, gradients backward."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import torch

from sambahost.channels import Channel, put
from sambahost.crew import FOREVER, Action

from .device import Device
from .errors import PyBudaError
from .microbatch import Microbatch, told
from .pipeline import BETWEEN, DevicePipeline, require_pushed
from .tensor import Tensor, tensors
from .training.trainer import Gradients, by_name

Checkpoint: TypeAlias = dict[str, Tensor]
"""Parameters of a device by name."""
Answers: TypeAlias = "Callable[[], list[Checkpoint]]"
Queue: TypeAlias = queue.Queue[object]


@dataclass(frozen=True)
class TrainingQueues:
    """Queues of the program: of losses, of checkpoints, and of what goes between devices."""

    losses: Queue
    checkpoints: Queue
    forward: Sequence[Queue] = ()
    backward: Sequence[Queue] = ()

    @classmethod
    def of(cls, losses: Queue | None, checkpoints: Queue | None) -> TrainingQueues:
        """Return queues of losses and checkpoints, new ones where there are none."""
        return cls(losses or queue.Queue(), checkpoints or queue.Queue())


@dataclass(frozen=True)
class Loops:
    """How often what is done: see `run_training`."""

    epochs: int
    steps: int
    accumulation_steps: int
    microbatch_count: int
    checkpoint_interval: int

    @property
    def microbatches(self) -> int:
        """How many microbatches there are in all."""
        return self.epochs * self.steps * self.accumulation_steps * self.microbatch_count

    def checkpoints(self) -> Iterator[bool]:
        """Yield for each step whether a checkpoint follows it; one follows the last."""
        last = self.epochs * self.steps
        for step in range(1, last + 1):
            regular = self.checkpoint_interval > 0 and step % self.checkpoint_interval == 0
            yield regular or step == last


class TrainingPipeline(DevicePipeline):
    """Devices in order, of which the last one has a loss, and the queues of the program.

    Raises `PyBudaError` where the loss is missing or on another device.
    """

    def __init__(self, devices: Sequence[Device], queues: TrainingQueues) -> None:
        _require_loss(devices)
        _require_own_parameters(devices)
        super().__init__(devices, [queues.losses, queues.checkpoints], self._drop)
        self.queues = queues
        self._trainers = [device.trainer(index == 0) for index, device in enumerate(devices)]
        self._last = len(self._devices) - 1
        self._targets = self._devices[-1].targets
        self._gradients: list[Channel[Gradients]] = [Channel(BETWEEN) for _ in self._devices[1:]]
        self._parts: list[deque[Checkpoint]] = [deque() for _ in self._devices]
        self._handing_over = threading.Lock()

    def compile_for(self, sample: Microbatch, targets: Microbatch) -> None:
        """Make devices ready for microbatches like these, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        following: Microbatch | None = sample
        for index, trainer in enumerate(self._trainers):
            if following is None or self._ready:
                break
            following = trainer.prepare(following, targets if index == self._last else None)
        self._ready = True

    def forward(self, count: int, in_sequence: bool) -> None:
        """Run `count` microbatches forward. Raises `PyBudaError` for too few in sequence."""
        _require_end(count)
        if in_sequence:
            self._require_pushed(count)
        self._run(lambda: [Action(self._forward, count)], in_sequence)

    def backward(self, count: int, zero: bool, in_sequence: bool) -> None:
        """Run `count` microbatches backward, after zeroing gradients if asked to."""
        _require_end(count)
        self._run(lambda: [self._backwards(count, zero)], in_sequence)

    def optimize(self, checkpoint: bool, in_sequence: bool) -> None:
        """Step the optimizers of all devices; a checkpoint may follow."""
        self._run(lambda: [Action(partial(self._optimize, checkpoint=checkpoint))], in_sequence)

    def schedule(self, in_sequence: bool) -> None:
        """Step the learning rates of all devices."""
        self._run(lambda: [Action(self._schedule)], in_sequence)

    def train(self, loops: Loops, in_sequence: bool) -> None:
        """Train as `loops` say. Raises `PyBudaError` for too few microbatches in sequence."""
        if in_sequence:
            self._require_pushed(loops.microbatches)
        self._run(lambda: self._training(loops), in_sequence)

    def update(
        self, values: Mapping[int, Mapping[str, torch.Tensor]]
    ) -> Callable[[], list[PyBudaError | None]]:
        """Overwrite parameters, by index of the device, after what came before.

        Return what waits for it, and gives what does not fit on each device.
        """

        def attempt(index: int) -> PyBudaError | None:
            try:
                self._trainers[index].update(values.get(index, {}))
            except PyBudaError as error:
                return error
            return None

        return self.crew.ask(attempt)

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self._devices)

    def waiting(self) -> tuple[Microbatch | None, Microbatch | None]:
        """Return the next microbatch and its targets, None for what was not pushed yet."""
        return self._inputs[0].peek(), self._targets.peek()

    def position(self, device: Device) -> int:
        """Return the index of a device. Raises `PyBudaError` if it is none of these."""
        if device not in self._devices:
            raise PyBudaError(f"device '{device.name}' is no part of the pipeline that trains")
        return self._devices.index(device)

    def _training(self, loops: Loops) -> Iterator[Action]:
        """Yield what each device does in training as `loops` say."""
        checkpoints = loops.checkpoints()
        for _epoch in range(loops.epochs):
            for _step in range(loops.steps):
                for number in range(loops.accumulation_steps):
                    yield Action(self._forward, loops.microbatch_count)
                    yield self._backwards(loops.microbatch_count, zero=number == 0)
                yield Action(partial(self._optimize, checkpoint=next(checkpoints)))
            yield Action(self._schedule)

    def _backwards(self, count: int, zero: bool) -> Action:
        if not zero:
            return Action(self._backward, count, backward=True)
        return Action(self._backward, count, self._zero, backward=True)

    def _require_pushed(self, count: int) -> None:
        self.crew.require_idle()
        require_pushed(self._inputs[0], count, "microbatches")
        require_pushed(self._targets, count, "targets")

    def _drop(self) -> None:
        self._inputs[0].clear()
        self._targets.clear()

    def _forward(self, index: int) -> None:
        stopped, trainer = self.crew.stopped, self._trainers[index]
        batch = self._inputs[index].get(stopped)
        targets = self._targets.get(stopped) if index == self._last else None
        outputs = trainer.forward(batch, targets)
        if index == self._last:
            put(self.queues.losses, trainer.told(outputs), stopped)
            return
        if index < len(self.queues.forward):
            put(self.queues.forward[index], told(t.clone() for t in outputs), stopped)
        self._inputs[index + 1].put(Microbatch(outputs), stopped)

    def _backward(self, index: int) -> None:
        stopped = self.crew.stopped
        starts = None if index == self._last else self._gradients[index].get(stopped)
        found = self._trainers[index].backward(starts)
        if index == 0:
            return
        if index - 1 < len(self.queues.backward):
            kept = told(gradient.clone() for gradient in found if gradient is not None)
            put(self.queues.backward[index - 1], kept, stopped)
        self._gradients[index - 1].put(found, stopped)

    def _zero(self, index: int) -> None:
        self._trainers[index].zero_gradients()

    def _schedule(self, index: int) -> None:
        self._trainers[index].schedule()

    def _optimize(self, index: int, checkpoint: bool) -> None:
        self._trainers[index].optimize()
        if checkpoint:
            part = tensors(self._trainers[index].parameters())
            with self._handing_over:
                self._parts[index].append(part)
                if all(self._parts):
                    whole: object = [parts.popleft() for parts in self._parts]
                    put(self.queues.checkpoints, whole, self.crew.stopped)


def _require_own_parameters(devices: Sequence[Device]) -> None:
    """Raise `PyBudaError` for a parameter on two devices, which would train it apart."""
    owners: dict[int, str] = {}
    for device in devices:
        modules = [*device.modules, *([] if device.loss is None else [device.loss])]
        for name, parameter in by_name(modules).items():
            other = owners.setdefault(id(parameter), device.name)
            if other != device.name and parameter.requires_grad:
                raise PyBudaError(
                    f"parameter '{name}' is on the devices '{other}' and '{device.name}', which "
                    "would each train it by themselves; place its modules on one"
                )


def _require_end(count: int) -> None:
    """Raise `PyBudaError` for passes without end: none would come after them."""
    if count == FOREVER:
        raise PyBudaError("input_count is 0, for ever, which is for inference alone")


def _require_loss(devices: Sequence[Device]) -> None:
    *others, last = devices
    if last.loss is None:
        raise PyBudaError(
            f"device '{last.name}', the last one, has no loss module, and training needs one; "
            "place_loss_module"
        )
    for device in others:
        if device.loss is not None:
            raise PyBudaError(
                f"device '{device.name}' has a loss module, which belongs on the last one, "
                f"'{last.name}'; remove_loss_module"
            )
