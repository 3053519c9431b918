"""Training on a device: a compiled step, run for each sample of microbatches by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol, TypeAlias
from zlib import crc32

import torch

import sambac
from pef.graphs import belonging
from pef.warned import warn
from pef.wording import did_you_mean

from .compiled_step import CompiledStep
from .host_trainer import require_shape
from .models import FreezeWatch, Glance, Mark, mark
from .samples import Gradients, Samples, gathered, joined, of_sample
from .stages import StepPlace, TrainedStage, TrainedStages
from .step_session import ForwardRun
from .trained_values import Trained, TrainedValues


class SampleRequest(Protocol):
    """What `api` asks of a device that trains. Two requests that are equal train the same."""

    api: ClassVar[str]

    def device(self) -> str:
        """Return the name of the device, for messages."""

    def loss(self) -> str | None:
        """Return the name of the module that computes the loss, None where another device does."""

    def threads(self) -> int | None:
        """Return how many threads an operator has, None for one per core."""

    def named(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters that modules have now, by name."""

    def part(self, batch: Samples) -> torch.nn.Module:
        """Return what torch would train, for microbatches like this."""

    def structure(self) -> object:
        """Return what is another one after modules have been changed, but for their tensors."""

    def owners(self) -> Iterable[object]:
        """Return the objects that hold what `structure` is of."""

    def tensors(self) -> Iterable[torch.Tensor]:
        """Return the parameters and buffers that modules have now."""

    def rate(self) -> float | None:
        """Return the learning rate of the next step, None where there is no optimizer."""

    def updates(self, paths: Mapping[str, str]) -> sambac.Optimizer | None:
        """Return what updates parameters, which have `paths` in the compiled program."""

    def schedule(self) -> None:
        """Step the learning rate, where something changes it."""

    def raises(self, said: str) -> Exception:
        """Return the error of the API that says this."""


Writes: TypeAlias = Sequence[tuple[StepPlace, torch.Tensor]]
"""Values, and where they go."""


class _Passed(NamedTuple):
    """A microbatch that has gone forward: its inputs, and the run of each sample."""

    batch: Samples
    runs: list[tuple[ForwardRun, ...]]


Compiles: TypeAlias = "Callable[[Samples, Samples | None, TrainedValues], CompiledStep]"
"""Returns the step for microbatches like these, with values that the device trained before."""


class SampleTrainer:
    """Trains what `compiles` gives for the first microbatch; parameters live on the device.

    `before` are values that the device trained earlier, of modules that have not changed since.
    `changes` counts what has changed parameters.
    """

    def __init__(self, request: SampleRequest, before: TrainedValues, compiles: Compiles) -> None:
        self.request = request
        self.before = before
        self._compiles = compiles
        self._own = request.named()
        self._stage: TrainedStages | None = None
        self._step: CompiledStep | None = None
        self._marks: list[tuple[StepPlace, torch.Tensor, Mark | None]] = []
        self._places: Mapping[str, StepPlace] = {}
        self._find: Callable[[], Mapping[str, torch.Tensor | None]] = dict
        self._watch = FreezeWatch()
        self._structure: object = None
        self._held: Sequence[torch.Tensor] = ()
        self._glance = Glance(())
        self._passed: deque[_Passed] = deque()
        self._has_gradients = False
        self.changes = 0

    def prepare(self, batch: Samples, targets: Samples | None) -> Samples | None:
        """Compile for microbatches like this, and return one of zeros like what it gives."""
        stage = self._compiled(batch, targets)
        outputs = [torch.zeros_like(tensor) for tensor in stage.outputs]
        return type(batch)(joined([outputs] * batch.with_targets(targets).size))

    def forward(self, batch: Samples, targets: Samples | None) -> tuple[torch.Tensor, ...]:
        """Return the outputs of all samples, or their losses, each computed by itself."""
        stage = self._compiled(batch, targets)
        ordered = batch.ordered(() if self._step is None else self._step.names)
        found = [stage.forward(sample) for sample in ordered.with_targets(targets).samples()]
        self._passed.append(_Passed(ordered, [run for _, run in found]))
        return joined([outputs for outputs, _ in found])

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run backward for each sample of the oldest microbatch that waits for it."""
        if not self._passed or self._stage is None:
            raise self.request.raises(
                f"device '{self.request.device()}' is to run backward more often than it ran "
                "forward"
            )
        batch, runs = self._passed.popleft()
        stage, found = self._stage, []
        self._has_gradients = True
        for index, run in enumerate(runs):
            starts = None if gradients is None else of_sample(gradients, index, stage.outputs)
            found.append(stage.backward(run, starts))
        return tuple(map(gathered, zip(*found, strict=True), batch.tensors))

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        if self._stage is not None:
            self._stage.zero_gradients()

    def optimize(self) -> None:
        """Update the parameters. Without an optimizer, or before any backward pass, warn."""
        rate = self.request.rate()
        device = f"device '{self.request.device()}'"
        if rate is None:
            if self.parameters():
                warn(f"{device} has no optimizer: its parameters stay as they are; give it one")
            return
        if not self._has_gradients and self.parameters():
            warn(
                f"{device} steps its optimizer before any backward pass: gradients are zero, "
                "and parameters move by weight decay alone, if at all"
            )
        if self._stage is not None:
            self.changes += 1
            self._watch.tell(device)
            self._stage.optimize(rate)

    def schedule(self) -> None:
        """Step the learning rate, where something changes it."""
        self.request.schedule()

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters that train, by name."""
        trained = self._trained()
        held = self._find()
        found = {}
        for name in trained:
            value = held.get(name)
            if value is None:  # not compiled yet, or nothing reads it
                parameter = self._own[name]
                value = self.before.values().get(id(parameter), parameter.detach()).clone()
            found[name] = value
        return found

    def gradients(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the gradients so far, of the parameters that the loss depends on."""
        if self._stage is None:
            return {}
        find = self._stage.gradient
        found = {name: find(self._places[name]) for name in self._trained()}
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def state(self, name: str, what: str) -> torch.Tensor | None:
        """Return a copy of what an optimizer keeps of a parameter, None for nothing."""
        place = self._places.get(name)
        if self._stage is None or place is None:
            return None
        return self._stage.find(place._replace(path=belonging(place.path, what)))

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name. Raises an error for what does not fit."""
        known = self._trained()
        unknown = [name for name in values if name not in known]
        if unknown:
            raise self.request.raises(
                f"device '{self.request.device()}' trains no parameter "
                f"'{unknown[0]}'{did_you_mean(unknown[0], known)}; it has "
                f"{', '.join(known) or 'none'}"
            )
        for name, value in values.items():
            require_shape(name, known[name].shape, value, self.request.raises)
        if self._stage is None:  # as behind a CPU: it is compiled for the first that comes
            self.changes += 1
            self.before = self.before.updated({n: (known[n], v) for n, v in values.items()})
        else:
            self.take([(self._places[name], value) for name, value in values.items()])

    def written(self) -> Writes:
        """Return what the program has written to parameters and buffers since this was last asked.

        Who asks has it taken, in a place where nothing runs.
        """
        present = [(place, tensor, mark(tensor)) for place, tensor, _ in self._marks]
        found = [
            (place, tensor.detach().clone())
            for (place, tensor, now), (_, _, before) in zip(present, self._marks, strict=True)
            if now != before
        ]
        if found:
            self._marks = present
        return found

    def take(self, values: Writes) -> None:
        """Let the device go on with values that were written, and else as it is."""
        self.changes += 1
        for place, value in values:
            if self._stage is not None:
                self._stage.write(place, value)

    @property
    def step(self) -> CompiledStep | None:
        """What was compiled, None before that."""
        return self._step

    def begin(self) -> None:
        """Forget forward passes whose backward passes have not come."""
        self._passed.clear()
        if self._stage is not None:
            self._stage.begin()

    def fits(self, request: SampleRequest) -> bool:
        """Tell whether this trains what `request` says, with values that the program set since."""
        changed = not self.is_current()
        if changed and self.changes:
            warn(
                f"the modules of device '{self.request.device()}' have changed since they were "
                "compiled to train: they are compiled again, and the state of the optimizer begins "
                "anew"
            )
        if changed or request != self.request:
            return False
        if written := self.written():
            self.take(written)
        return True

    def is_current(self) -> bool:
        """Tell whether modules are as they were when they were compiled, but for values."""
        if self._stage is None or self._glance.is_same():
            return True
        if self._structure != self._looks():
            return False
        self._glance = Glance(self.request.owners(), modes=True)
        return True

    def trained(self) -> TrainedValues:
        """Return the values of all parameters and buffers now, or those of before."""
        if self._stage is None:
            return self.before
        found = [
            Trained(place.path, tensor, before, self._stage.find(place))
            for place, tensor, before in self._marks
        ]
        # Not all buffers are part of the program.
        return TrainedValues(
            [
                item
                for item in found
                if item.value is not None or isinstance(item.tensor, torch.nn.Parameter)
            ],
            self.request.raises,
        )

    def close(self) -> None:
        """Give back the memory of the device."""
        if self._stage is not None:
            self._stage.close()
        self._stage, self._find, self._has_gradients = None, dict, False

    def _looks(self) -> object:
        """Return what is another one where the same values could not be written any more."""
        found = [(id(t), t.shape, t.dtype) for t in self.request.tensors()]
        return self.request.structure(), found

    def _trained(self) -> Mapping[str, torch.nn.Parameter]:
        if self._stage is not None:
            return self._watch.trained
        return {name: p for name, p in self._own.items() if p.requires_grad}

    def _compiled(self, batch: Samples, targets: Samples | None) -> TrainedStages:
        """Compile for microbatches like this, unless that was done. Raises as compiling does."""
        if self._stage is not None:
            return self._stage
        self._own = self.request.named()  # values may have been set since
        step = self._compiles(batch, targets, self.before)
        request = self.request
        stages = [
            TrainedStage(made, inputs, request.threads(), request.api, request.raises)
            for made, inputs in zip(step.made, step.inputs, strict=True)
        ]
        for seed, each in enumerate(stages, crc32(request.device().encode())):
            each.draw_from(seed)
        stage = TrainedStages(stages)
        if self.request.loss() is not None and any(loss.numel() != 1 for loss in stage.outputs):
            shapes = ", ".join(str([*loss.shape]) for loss in stage.outputs)
            stage.close()
            raise self.request.raises(
                f"the loss module '{self.request.loss()}' gives {shapes} for a sample; one "
                "number was expected"
            )
        for place, value in step.later.items():
            stage.write(place, value)
        self._places = step.places
        trained = self._trained()
        self._watch = FreezeWatch(trained)
        self._find = stage.finder({n: place for n, place in step.places.items() if n in trained})
        self._marks = [(place, tensor, mark(tensor)) for place, tensor in step.tensors]
        self._held = [*request.tensors()]  # so that no other one gets their ids
        self._structure, self._glance = self._looks(), Glance(request.owners(), modes=True)
        self._stage, self._step = stage, step
        return stage
