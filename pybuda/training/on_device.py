"""Training on a `TTDevice`: a compiled step, run for each sample by itself."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import torch

from pef.graphs import gradient_name
from pef.warned import warn
from pef.wording import did_you_mean
from pybuda.config import CompileSettings
from pybuda.errors import PyBudaError
from pybuda.microbatch import Microbatch, joined
from pybuda.optimizers import Optimizer
from pybuda.placeable import Placeable
from pybuda.recorded import Chain, Graded
from pybuda.schedulers import LearningRateScheduler
from pybuda.tensor import Tensor, require_shape
from sambahost.models import mark
from sambahost.stages import StageProgram, TrainedStage
from sambahost.step_session import ForwardRun

from .stage import StageWish, compiled_step
from .trainer import Gradients, Workload, by_name
from .values import Trained, TrainedValues


class _Passed(NamedTuple):
    """A microbatch that has gone forward: its inputs, and the run of each sample."""

    batch: Microbatch
    runs: list[ForwardRun]


@dataclass(frozen=True)
class DeviceWish:
    """How a device trains: its modules and loss, its optimizer, and what the configuration asks."""

    work: Workload
    optimizer: Optimizer | None
    scheduler: LearningRateScheduler | None
    settings: CompileSettings

    def named(self) -> dict[str, torch.nn.Parameter]:
        """Return the parameters that modules have now, by name."""
        return by_name([*self.work.modules, *filter(None, (self.work.loss,))])


@dataclass(frozen=True)
class CompiledStep:
    """A compiled training step: its program, and what is called how in it.

    The first `inputs` of what it takes are inputs, by `names` if they came so. `paths` are those of
    parameters by name; `tensors` have the values that the program began with, by path, but for
    those of `later`, which are written when it is loaded.
    """

    made: StageProgram
    inputs: int
    names: tuple[str, ...]
    paths: Mapping[str, str]
    tensors: Sequence[tuple[str, torch.Tensor]]
    later: Mapping[str, torch.Tensor] = field(default_factory=dict)


Compiles: TypeAlias = "Callable[[Microbatch, Microbatch | None, TrainedValues], CompiledStep]"
"""Returns the step for microbatches like these, with values that the device trained before."""


class DeviceTrainer:
    """Trains what `compiles` gives for the first microbatch; parameters live on the device.

    `before` are values that the device trained earlier, of modules that have not changed since.
    `changes` counts what has changed parameters.
    """

    def __init__(self, wish: DeviceWish, before: TrainedValues, compiles: Compiles) -> None:
        self._wish = wish
        self._work = wish.work
        self._optimizer = wish.optimizer
        self._before = before
        self._compiles = compiles
        self._own = wish.named()
        self._stage: TrainedStage | None = None
        self._step: CompiledStep | None = None
        self._marks: list[tuple[str, torch.Tensor, tuple[int, int] | None]] = []
        self._paths: Mapping[str, str] = {}
        self._passed: deque[_Passed] = deque()
        self.changes = 0

    def prepare(self, batch: Microbatch, targets: Microbatch | None) -> Microbatch | None:
        """Compile for microbatches like this, and return one of zeros like what it gives."""
        stage = self._compiled(batch, targets)
        outputs = [torch.zeros_like(tensor) for tensor in stage.outputs]
        return Microbatch(joined([outputs] * batch.with_targets(targets).size))

    def forward(self, batch: Microbatch, targets: Microbatch | None) -> tuple[torch.Tensor, ...]:
        """Return the outputs of all samples, or their losses, each computed by itself."""
        stage = self._compiled(batch, targets)
        ordered = batch.ordered(() if self._step is None else self._step.names)
        found = [stage.forward(sample) for sample in ordered.with_targets(targets).samples()]
        self._passed.append(_Passed(ordered, [run for _, run in found]))
        return joined([outputs for outputs, _ in found])

    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return a list of tensors, with a number for each sample."""
        return [Tensor(loss) for loss in losses]

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run backward for each sample of the oldest microbatch that waits for it."""
        if not self._passed or self._stage is None:
            raise PyBudaError(
                f"device '{self._work.device}' is to run backward more often than it ran forward"
            )
        batch, runs = self._passed.popleft()
        stage, found = self._stage, []
        for index, run in enumerate(runs):
            starts = None if gradients is None else _of_sample(gradients, index, stage.outputs)
            found.append(stage.backward(run, starts))
        return tuple(map(_gathered, zip(*found, strict=True), batch.tensors))

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        if self._stage is not None:
            self._stage.zero_gradients()

    def optimize(self) -> None:
        """Update the parameters. Without an optimizer, warn."""
        if self._optimizer is None:
            if self.parameters():
                warn(
                    f"device '{self._work.device}' has no optimizer: its parameters stay as they "
                    "are; give it one of pybuda.optimizers"
                )
        elif self._stage is not None:
            self.changes += 1
            self._stage.optimize(self._optimizer.learning_rate)

    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""
        if self._wish.scheduler is not None:
            self._wish.scheduler.step()

    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters that train, by name."""
        return {name: self._value(name) for name in self._trained()}

    def gradients(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the gradients so far, of the parameters that the loss depends on."""
        if self._stage is None:
            return {}
        find = self._stage.find
        found = {name: find(gradient_name(self._paths[name])) for name in self._trained()}
        return {name: gradient for name, gradient in found.items() if gradient is not None}

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name. Raises `PyBudaError` for what does not fit."""
        known = self._trained()
        unknown = [name for name in values if name not in known]
        if unknown:
            raise PyBudaError(
                f"device '{self._work.device}' trains no parameter "
                f"'{unknown[0]}'{did_you_mean(unknown[0], known)}; it has "
                f"{', '.join(known) or 'none'}"
            )
        for name, value in values.items():
            require_shape(name, known[name].shape, value)
        if self._stage is None:
            raise PyBudaError(
                f"device '{self._work.device}' has not been compiled yet, so it has no parameters "
                "to update; give sample_inputs, or run something first"
            )
        self.changes += 1
        for name, value in values.items():
            self._stage.write(self._paths[name], value)

    def begin(self) -> None:
        """Forget forward passes whose backward passes have not come."""
        self._passed.clear()
        if self._stage is not None:
            self._stage.begin()

    def fits(self, work: Workload, settings: CompileSettings) -> bool:
        """Tell whether this trains `work` by `settings`, and the program set no values since."""
        known = {id(tensor) for _, tensor, _ in self._marks}
        return (
            (work, settings) == (self._work, self._wish.settings)
            and all(mark(tensor) == before for _, tensor, before in self._marks)
            and (self._stage is None or all(id(t) in known for t in self._wish.named().values()))
        )

    def trained(self) -> TrainedValues:
        """Return the values of all parameters and buffers now, or those of before."""
        if self._stage is None:
            return self._before
        found = [Trained(*item, self._stage.find(item[0])) for item in self._marks]
        # Not all buffers are part of the program.
        return TrainedValues(
            [
                item
                for item in found
                if item.value is not None or isinstance(item.tensor, torch.nn.Parameter)
            ]
        )

    def close(self) -> None:
        """Give back the memory of the device."""
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def _trained(self) -> Mapping[str, torch.nn.Parameter]:
        return {name: p for name, p in self._own.items() if p.requires_grad}

    def _value(self, name: str) -> torch.Tensor:
        parameter = self._own[name]
        path = self._paths.get(name)
        found = None if self._stage is None or path is None else self._stage.find(path)
        if found is None:  # not compiled yet, or nothing reads it
            found = self._before.values().get(id(parameter), parameter.detach()).clone()
        return found

    def _compiled(self, batch: Microbatch, targets: Microbatch | None) -> TrainedStage:
        """Compile for microbatches like this, unless that was done. Raises as compiling does."""
        if self._stage is not None:
            return self._stage
        self._own = self._wish.named()  # values may have been set since
        step = self._compiles(batch, targets, self._before)
        stage = TrainedStage(
            step.made, step.inputs, self._wish.settings.threads, "pybuda", PyBudaError
        )
        if self._work.loss is not None and any(loss.numel() != 1 for loss in stage.outputs):
            shapes = ", ".join(str([*loss.shape]) for loss in stage.outputs)
            stage.close()
            raise PyBudaError(
                f"the loss module '{self._work.loss.get_name()}' gives {shapes} for a sample; one "
                "number was expected"
            )
        for path, value in step.later.items():
            stage.write(path, value)
        self._paths = step.paths
        self._marks = [(path, tensor, mark(tensor)) for path, tensor in step.tensors]
        self._stage, self._step = stage, step
        return stage


def compile_step(
    wish: DeviceWish, batch: Microbatch, targets: Microbatch | None, before: TrainedValues
) -> CompiledStep:
    """Compile the modules and the loss of a device for microbatches like these.

    Raises `PyBudaError` for modules that do not train, and as compiling does.
    """
    work, part = wish.work, _part(wish.work, batch)
    tensors = [*part.named_parameters(), *part.named_buffers()]
    found = {id(tensor): path for path, tensor in tensors}
    own = wish.named()
    paths = {name: found[id(tensor)] for name, tensor in own.items()}
    known = {name: path for name, path in paths.items() if own[name].requires_grad}
    optimizer = None if wish.optimizer is None or not known else wish.optimizer.compiled(known)
    with before.within(part):
        sample = next(batch.with_targets(targets).samples())
        asked = StageWish(len(batch.tensors), work.first, optimizer, wish.settings)
        made = compiled_step(part, sample, asked)
    return CompiledStep(made, len(batch.tensors), batch.names, paths, tensors)


def _part(work: Workload, batch: Microbatch) -> Chain | Graded:
    """Return what is compiled of the modules and the loss. Raises `PyBudaError` for ONNX models."""
    chain = Chain(map(_in_torch, work.modules), batch.names) if work.modules else None
    if work.loss is not None:
        return Graded(chain, _in_torch(work.loss), len(batch.tensors))
    if chain is None:
        raise PyBudaError(f"device '{work.device}' has no modules; place_module")
    return chain


def _in_torch(module: Placeable) -> torch.nn.Module:
    part = module.part()
    if not isinstance(part, torch.nn.Module):
        raise PyBudaError(
            f"'{module.get_name()}' is an ONNX model, which runs here but does not train; train it "
            "as a PyTorchModule"
        )
    return part


def _of_sample(
    gradients: Gradients, index: int, outputs: Sequence[torch.Tensor]
) -> list[torch.Tensor | None]:
    """Return the gradients of the outputs of one sample, which are shaped as `outputs`."""
    return [
        None if gradient is None else gradient[index].reshape(output.shape)
        for gradient, output in zip(gradients, outputs, strict=True)
    ]


def _gathered(samples: Sequence[torch.Tensor | None], given: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of an input of a microbatch from those of samples.

    It is their sum where all samples have one and the same.
    """
    found = [gradient for gradient in samples if gradient is not None]
    if not found:
        return None
    apart = given.ndim > 0 and given.shape[0] > 1
    return torch.cat(found) if apart else torch.stack(found).sum(0)
