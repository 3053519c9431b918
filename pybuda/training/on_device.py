"""Training on a `TTDevice`: its modules and loss become a compiled step, run sample by sample."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

import sambac
from pybuda.compiling import options_for
from pybuda.config import UNSET, CompileSettings
from pybuda.errors import PyBudaError
from pybuda.microbatch import told
from pybuda.optimizers import Optimizer
from pybuda.placeable import Placeable
from pybuda.recorded import Chain, Graded
from pybuda.schedulers import LearningRateScheduler
from sambahost.models import in_mode, tried
from sambahost.sample_trainer import CompiledStep, SampleTrainer
from sambahost.samples import Samples
from sambahost.stages import StageProgram
from sambahost.trained_values import TrainedValues

from .trainer import Workload, by_name


class DeviceTrainer(SampleTrainer):
    """Trains the modules of a `TTDevice`."""

    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return a list of tensors, with a number for each sample."""
        return told(losses)


@dataclass(frozen=True)
class DeviceRequest:
    """How a device trains: its modules and loss, its optimizer, and what the configuration asks."""

    work: Workload
    optimizer: Optimizer | None
    scheduler: LearningRateScheduler | None
    settings: CompileSettings
    api: ClassVar[str] = "pybuda"
    raises = PyBudaError

    def device(self) -> str:
        """Return the name of the device."""
        return self.work.device

    def loss(self) -> str | None:
        """Return the name of the loss module, None for none."""
        return None if self.work.loss is None else self.work.loss.get_name()

    def threads(self) -> int | None:
        """Return how many threads an operator has, None for one per core."""
        return self.settings.threads

    def named(self) -> Mapping[str, torch.nn.Parameter]:
        """Return the parameters that modules have now, by name."""
        return by_name([*self.work.modules, *filter(None, (self.work.loss,))])

    def rate(self) -> float | None:
        """Return the learning rate of the next step, None where there is no optimizer."""
        return None if self.optimizer is None else self.optimizer.learning_rate

    def updates(self, paths: Mapping[str, str]) -> sambac.Optimizer | None:
        """Return what updates parameters, which have `paths` in the compiled program."""
        return None if self.optimizer is None or not paths else self.optimizer.compiled(paths)

    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""
        if self.scheduler is not None:
            self.scheduler.step()

    def part(self, batch: Samples) -> Chain | Graded:
        """Return what is compiled of modules and loss. Raises `PyBudaError` for ONNX models."""
        work = self.work
        chain = Chain(map(_in_torch, work.modules), batch.names) if work.modules else None
        if work.loss is not None:
            return Graded(chain, _in_torch(work.loss), len(batch.tensors))
        if chain is None:
            raise PyBudaError(f"device '{work.device}' has no modules; place_module")
        return chain


def compile_step(
    request: DeviceRequest, batch: Samples, targets: Samples | None, before: TrainedValues
) -> CompiledStep:
    """Compile the modules and the loss of a device for microbatches like these.

    Raises `PyBudaError` for modules that do not train, and as compiling does.
    """
    part = request.part(batch)
    tensors = [*part.named_parameters(), *part.named_buffers()]
    found = {id(tensor): path for path, tensor in tensors}
    own = request.named()
    paths = {name: found[id(tensor)] for name, tensor in own.items()}
    known = {name: path for name, path in paths.items() if own[name].requires_grad}
    with before.within(part):
        sample = next(batch.with_targets(targets).samples())
        how = (request.work.first, request.settings, request.updates(known))
        made = compiled_step(part, sample, len(batch.tensors), *how)
    return CompiledStep(made, len(batch.tensors), batch.names, paths, tensors)


def compiled_step(
    part: Chain | Graded,
    sample: Sequence[torch.Tensor],
    count: int,
    first: bool,
    settings: CompileSettings = UNSET,
    optimizer: sambac.Optimizer | None = None,
) -> StageProgram:
    """Compile `part` to train on tensors like `sample`: `count` inputs, and targets of its loss.

    Nobody wants gradients of the inputs of the `first` device.
    """
    outputs = tried(part, sample, training=True)
    ports = tuple(f"tensors_{index}" for index in range(len(sample)))
    wanted = _wanted(part, sample[:count], first)
    options = replace(
        options_for(part, settings),
        train=True,
        accumulate=True,
        recompute=settings.recompute,
        optimizers=() if optimizer is None else (optimizer,),
        backward_from=tuple(f"output_{index}" for index in range(len(outputs))),
        input_grads=tuple(ports[index] for index in wanted),
    )
    with in_mode(part, training=True):
        program = sambac.compile(part, options, inputs=tuple(sample))
    spoken = tuple(
        f"input {index}" if index < count else f"target {index - count}"
        for index in range(len(ports))
    )
    names = tuple(port.name for port in program.graphs[0].outputs[: len(outputs)])
    return StageProgram(program, ports, spoken, names)


def _wanted(part: torch.nn.Module, inputs: Sequence[torch.Tensor], first: bool) -> list[int]:
    """Return which inputs are to have gradients: where nothing trains, those of a first stage too.

    The compiler makes a training step of something, and dropout is to drop there as well. Raises
    `PyBudaError` where there is nothing at all that could have a gradient.
    """
    trains = any(parameter.requires_grad for parameter in part.parameters())
    floats = [index for index, tensor in enumerate(inputs) if tensor.is_floating_point()]
    if not trains and not floats:
        raise PyBudaError(
            "a device has neither parameters that train nor inputs that can have a gradient; place "
            "its modules on the next device, or on a CPUDevice"
        )
    return [] if first and trains else floats


def _in_torch(module: Placeable) -> torch.nn.Module:
    part = module.part()
    if not isinstance(part, torch.nn.Module):
        raise PyBudaError(
            f"'{module.get_name()}' is an ONNX model, which runs here but does not train; train it "
            "as a PyTorchModule"
        )
    return part
