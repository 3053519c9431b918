"""Devices that train: microbatches go forward through them, gradients backward."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch

from .crew import FOREVER, Action, Channel, Crew, put
from .samples import Gradients, Samples, Tensors
from .watcher import Watcher

Queue: TypeAlias = queue.Queue[object]
BETWEEN = 8
"""Microbatches that wait between two devices: more would take memory and gain no time."""


class DeviceWorker(Protocol):
    """What a device does in training."""

    def prepare(self, batch: Samples, targets: Samples | None) -> Samples | None:
        """Make ready for microbatches like this; return what it gives, None if that is unknown."""

    def forward(self, batch: Samples, targets: Samples | None) -> Tensors:
        """Return the outputs for a microbatch, or its losses."""

    def told(self, losses: Tensors) -> object:
        """Return what the queue of losses gets."""

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run the oldest forward pass that waits for it backward."""

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""

    def optimize(self) -> None:
        """Update the parameters."""

    def schedule(self) -> None:
        """Step the learning rate."""

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters, by name."""

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name. Raises an error for what does not fit."""

    def written(self) -> Sequence[Any]:
        """Return what the program has written to modules since this was last asked."""

    def take(self, values: Sequence[Any]) -> None:
        """Go on with what was `written`."""


@dataclass(frozen=True)
class TrainingQueues:
    """Queues of the program: of losses, of checkpoints, and of what goes between devices."""

    losses: Queue
    checkpoints: Queue
    forward: Sequence[Queue] = ()
    backward: Sequence[Queue] = ()

    @classmethod
    def of(
        cls,
        losses: Queue | None,
        checkpoints: Queue | None,
        forward: Sequence[Queue] = (),
        backward: Sequence[Queue] = (),
    ) -> TrainingQueues:
        """Return the queues, new ones of losses and checkpoints where there are none."""
        first, second = (queue.Queue() if each is None else each for each in (losses, checkpoints))
        return cls(first, second, forward, backward)


@dataclass(frozen=True)
class Loops:
    """How often what is done: steps of accumulated microbatches, in epochs with checkpoints."""

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


@dataclass(frozen=True)
class TrainingDevice:
    """A device of a pipeline, what trains on it, and what compares that with torch, if it is."""

    name: str
    trainer: DeviceWorker
    watcher: Watcher | None

    def rewritten(self) -> None:
        """Let what compares go on with values that the program has written."""
        if self.watcher is not None:
            self.watcher.written()


@dataclass(frozen=True)
class Api:
    """What an API makes of tensors for queues, of parameters for checkpoints, and of sentences.

    `compiled` is called once all devices of a pipeline are.
    """

    told: Callable[[Iterable[torch.Tensor]], object]
    checkpoint: Callable[[Mapping[str, torch.Tensor]], object]
    samples: type[Samples]
    raises: Callable[[str], Exception]
    compiled: Callable[[], None]


class TrainingPipeline:
    """Devices in order, of which the last one has a loss, and the queues of the program.

    Microbatches come out of `inputs`, their targets out of `targets`.
    """

    def __init__(
        self,
        devices: Sequence[TrainingDevice],
        inputs: Channel[Samples],
        targets: Channel[Samples],
        queues: TrainingQueues,
        api: Api,
    ) -> None:
        self.queues = queues
        self._devices = tuple(devices)
        self._api = api
        self._ready = False
        self._targets = targets
        behind = self._devices[1:]
        self._inputs = [inputs, *(Channel[Samples](BETWEEN) for _ in behind)]
        self._gradients: list[Channel[Gradients]] = [Channel(BETWEEN) for _ in behind]
        self._last = len(behind)
        self._parts: list[deque[object]] = [deque() for _ in self._devices]
        self._handing_over = threading.Lock()
        names = [device.name for device in devices]
        self.crew = Crew(names, [queues.losses, queues.checkpoints], self._drop, api.raises)

    def compile_for(self, sample: Samples, targets: Samples) -> None:
        """Make devices ready for microbatches like these, as far as torch need not run for it.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        following: Samples | None = sample
        for index, device in enumerate(self._devices):
            if following is None or self._ready:
                break
            following = device.trainer.prepare(following, targets if index == self._last else None)
        if following is not None and not self._ready:
            self._api.compiled()
        self._ready = True

    def forward(self, count: int, in_sequence: bool, only: int | None = None) -> None:
        """Run `count` microbatches forward, on all devices or `only` one.

        Raises an error for too few in sequence.
        """
        self._require_end(count)
        if in_sequence:
            self._require_pushed(count, only)
        self.take_writes()
        step = partial(self._forward, waits=only is None)
        self.crew.begin(lambda: [Action(step, count)], in_sequence, only)

    def backward(self, count: int, zero: bool, in_sequence: bool, only: int | None = None) -> None:
        """Run `count` microbatches backward, after zeroing gradients if asked to.

        Raises an error where `only` one device is to, in sequence, and too few gradients came.
        """
        self._require_end(count)
        if in_sequence and only not in (None, self._last):
            self._gradients[only].require(count, "gradients", self._api.raises)
        waits = only is None
        self.crew.begin(lambda: [self._backwards(count, zero, waits)], in_sequence, only)

    def optimize(self, checkpoint: bool, in_sequence: bool, only: int | None = None) -> None:
        """Step the optimizers of all devices, or of `only` one; a checkpoint may follow."""
        self.take_writes()
        self.crew.begin(
            lambda: [Action(partial(self._optimize, checkpoint=checkpoint))], in_sequence, only
        )

    def schedule(self, in_sequence: bool, only: int | None = None) -> None:
        """Step the learning rates of all devices, or of `only` one."""
        self.crew.begin(lambda: [Action(self._schedule)], in_sequence, only)

    def train(self, loops: Loops, in_sequence: bool) -> None:
        """Train as `loops` say. Raises an error for too few microbatches in sequence."""
        if in_sequence:
            self._require_pushed(loops.microbatches)
        self.take_writes()
        self.crew.begin(lambda: self._training(loops), in_sequence)

    def update(
        self, values: Mapping[int, Mapping[str, torch.Tensor]]
    ) -> Callable[[], list[Exception | None]]:
        """Overwrite parameters, by index of the device, after what came before.

        Return what waits for it, and gives what does not fit on each device.
        """
        self.take_writes()

        def attempt(index: int) -> Exception | None:
            device = self._devices[index]
            try:
                device.trainer.update(values.get(index, {}))
            except RuntimeError as error:
                return error
            device.rewritten()
            return None

        return self.crew.ask(attempt)

    def take_writes(self) -> None:
        """Let devices go on, after what came before, with what the program wrote to modules."""
        found = [device.trainer.written() for device in self._devices]

        def take(index: int) -> None:
            if found[index]:
                self._devices[index].trainer.take(found[index])
                self._devices[index].rewritten()

        if any(found):
            self.crew.ask(take)

    @property
    def size(self) -> int:
        """The number of devices."""
        return len(self._devices)

    def waiting(self) -> tuple[Samples | None, Samples | None]:
        """Return the next microbatch and its targets, None for what was not pushed yet."""
        return self._inputs[0].peek(), self._targets.peek()

    def position(self, name: str) -> int | None:
        """Return the index of a device, None where it is none of these."""
        names = [device.name for device in self._devices]
        return names.index(name) if name in names else None

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

    def _backwards(self, count: int, zero: bool, waits: bool = True) -> Action:
        step = partial(self._backward, waits=waits)
        if not zero:
            return Action(step, count, backward=True)
        return Action(step, count, self._zero, backward=True)

    def _require_pushed(self, count: int, only: int | None = None) -> None:
        self.crew.require_idle()
        self._inputs[only or 0].require(count, "microbatches", self._api.raises)
        if only in (None, self._last):
            self._targets.require(count, "targets", self._api.raises)

    def _drop(self) -> None:
        self._inputs[0].clear()
        self._targets.clear()

    def _forward(self, index: int, waits: bool = True) -> None:
        stopped, device = self.crew.stopped, self._devices[index]
        batch = self._inputs[index].get(stopped)
        targets = self._targets.get(stopped) if index == self._last else None
        outputs = device.trainer.forward(batch, targets)
        if device.watcher is not None:
            device.watcher.forward(batch, targets, outputs)
        if index == self._last:
            put(self.queues.losses, device.trainer.told(outputs), stopped)
            return
        if index < len(self.queues.forward):
            put(self.queues.forward[index], self._api.told(t.clone() for t in outputs), stopped)
        self._inputs[index + 1].put(self._api.samples(outputs), stopped, waits=waits)

    def _backward(self, index: int, waits: bool) -> None:
        stopped, device = self.crew.stopped, self._devices[index]
        starts = None if index == self._last else self._gradients[index].get(stopped)
        found = device.trainer.backward(starts)
        if device.watcher is not None:
            device.watcher.backward(starts, found)
        if index == 0:
            return
        if index - 1 < len(self.queues.backward):
            kept = self._api.told(gradient.clone() for gradient in found if gradient is not None)
            put(self.queues.backward[index - 1], kept, stopped)
        self._gradients[index - 1].put(found, stopped, waits=waits)

    def _zero(self, index: int) -> None:
        device = self._devices[index]
        device.trainer.zero_gradients()
        if device.watcher is not None:
            device.watcher.zero_gradients()

    def _schedule(self, index: int) -> None:
        self._devices[index].trainer.schedule()

    def _optimize(self, index: int, checkpoint: bool) -> None:
        device = self._devices[index]
        device.trainer.optimize()
        if device.watcher is not None:
            device.watcher.optimize()
        if checkpoint:
            part = self._api.checkpoint(device.trainer.parameters())
            with self._handing_over:
                self._parts[index].append(part)
                if all(self._parts):
                    whole: object = [parts.popleft() for parts in self._parts]
                    put(self.queues.checkpoints, whole, self.crew.stopped)

    def _require_end(self, count: int) -> None:
        """Raise an error for passes without end: none would come after them."""
        if count == FOREVER:
            raise self._api.raises("input_count is 0, for ever, which is for inference alone")


def require_trains(
    losses: Sequence[str],
    parameters: Mapping[str, Mapping[str, torch.nn.Parameter]],
    raises: Callable[[str], Exception],
) -> None:
    """Raise an error where devices cannot train: without a loss on the last one, and there alone.

    `losses` are devices that have one, `parameters` those of all devices in order, by name. On two
    devices a parameter would train apart, which is refused too.
    """
    *others, last = parameters
    if misplaced := [name for name in others if name in losses]:
        raise raises(
            f"device '{misplaced[0]}' has a loss module, which belongs on the last one, '{last}'; "
            "remove_loss_module"
        )
    if last not in losses:
        raise raises(
            f"device '{last}', the last one, has no loss module, and training needs one; "
            "place_loss_module"
        )
    owners: dict[int, str] = {}
    for device, named in parameters.items():
        for name, parameter in named.items():
            other = owners.setdefault(id(parameter), device)
            if other != device and parameter.requires_grad:
                raise raises(
                    f"parameter '{name}' is on the devices '{other}' and '{device}', which would "
                    "each train it by themselves; place its modules on one"
                )
