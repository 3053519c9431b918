"""Training on a `TTDevice`: its modules and loss become a compiled step, run sample by sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch

import sambac
from pef.warned import warn
from pybuda.compiling import options_for
from pybuda.config import CompileSettings, compiler
from pybuda.errors import PyBudaError, as_own
from pybuda.microbatch import told
from pybuda.optimizers import Optimizer
from pybuda.schedulers import LearningRateScheduler
from pybuda.stage import parts_of
from sambahost import compiled_step
from sambahost.chains import Chain, Graded
from sambahost.compiled_step import AnyPart, CompiledStep, StepRequest
from sambahost.onnx_part import OnnxPart
from sambahost.pass_checks import passes_checked
from sambahost.sample_trainer import SampleTrainer
from sambahost.samples import Samples
from sambahost.trained_values import TrainedValues

from .trainer import Workload, by_name


class DeviceTrainer(SampleTrainer):
    """Trains the modules of a `TTDevice`."""

    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return a list of tensors, with a number for each sample."""
        return told(losses)


@dataclass(frozen=True)
class DeviceRequest:
    """How a device of so many `chips` trains: modules, a loss, an optimizer, and what is asked."""

    work: Workload
    optimizer: Optimizer | None
    scheduler: LearningRateScheduler | None
    settings: CompileSettings
    chips: int
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
        return by_name(self.work.placed())

    def structure(self) -> object:
        """Return what is another one after modules have been changed, but for their tensors."""
        return [module._structure(objects=False) for module in self.work.placed()]

    def owners(self) -> Iterator[object]:
        """Return the objects that hold what `structure` is of."""
        return (owner for module in self.work.placed() for owner in module.owners())

    def tensors(self) -> Iterator[torch.Tensor]:
        """Return the parameters and buffers that modules have now."""
        return (tensor for module in self.work.placed() for tensor in module.version().tensors)

    def rate(self) -> float | None:
        """Return the learning rate of the next step, None where there is no optimizer."""
        if self.optimizer is not None:
            self.optimizer._made()  # refuses a rate that is no number
        return None if self.optimizer is None else self.optimizer.learning_rate

    def updates(self, paths: Mapping[str, str]) -> sambac.Optimizer | None:
        """Return what updates parameters, which have `paths` in the compiled program."""
        return None if self.optimizer is None else self.optimizer.compiled(paths)

    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""
        if self.scheduler is not None:
            self.scheduler.step()

    def parts(self, batch: Samples) -> list[AnyPart]:
        """Return what is compiled of modules and loss, for microbatches like this."""
        work = self.work
        found: list[AnyPart] = [*parts_of(work.modules, batch.names)]
        if work.loss is None:
            if not found:
                raise PyBudaError(f"device '{work.device}' has no modules; place_module")
            return found
        loss = work.loss.part()
        if isinstance(loss, torch.nn.Module):
            chain = found.pop() if found and isinstance(found[-1], Chain) else None
            before = found[-1] if found else None
            inputs = len(before.outputs if isinstance(before, OnnxPart) else batch.tensors)
            before_loss = chain if isinstance(chain, Chain) else None
            loss = Graded(before_loss, loss, inputs, PyBudaError)
        return [*found, loss]

    def part(self, batch: Samples) -> torch.nn.Module:
        """Return what torch would train. Raises `PyBudaError` where that is an ONNX model."""
        (first, *others) = self.parts(batch)
        if others or not isinstance(first, torch.nn.Module):
            raise PyBudaError(
                f"device '{self.work.device}' has an ONNX model, which torch cannot train to "
                "verify it; train it as a PyTorchModule, or without _verify_cfg"
            )
        return first


def tell_of_chips(device: str, used: int, there: int) -> None:
    """Warn of a device with fewer chips than breaks ask for."""
    if used > there:
        warn(
            f"chip breaks ask for {used} chips, device '{device}' has {there}, and {used} are "
            f"modelled; give it num_chips={used}"
        )


def compile_step(
    request: DeviceRequest, batch: Samples, targets: Samples | None, before: TrainedValues
) -> CompiledStep:
    """Compile the modules and the loss of a device for microbatches like these.

    Raises `PyBudaError` for modules that do not train, and as compiling does.
    """
    own, settings = request.named(), request.settings
    if settings.intermediates:
        warn(
            f"device '{request.work.device}' trains: op_intermediates_to_save is for inference, "
            "and nothing is saved"
        )
    if request.optimizer is not None:
        request.optimizer.require_on([name for name, item in own.items() if item.requires_grad])

    def asks(part: AnyPart) -> sambac.CompileOptions:
        return replace(options_for(part, settings), train=True, recompute=settings.recompute)

    asked = StepRequest(asks, own, request.updates, request.work.first)
    device = f"device '{request.work.device}'"
    with as_own(f"{device}: "), passes_checked(settings.passes, device):
        step = compiled_step.compile_step(asked, request.parts(batch), (batch, targets), before)
    tell_of_chips(request.work.device, step.chips, request.chips)
    for stage in step.made:
        compiler()._known.add_program(stage.program, settings.number_rules)
    return step
