"""Training on a `CPUDevice`: torch's own autograd and optimizers, on whole microbatches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

import torch

from pybuda.errors import PyBudaError
from pybuda.placeable import Placeable
from sambahost.chains import Chain, Graded
from sambahost.host_trainer import HostRequest, HostTrainer
from sambahost.keras import KerasModule
from sambahost.samples import Samples

from .trainer import Workload

MakesOptimizer: TypeAlias = "Callable[[torch.nn.Module], torch.optim.Optimizer]"
MakesScheduler: TypeAlias = (
    "Callable[[torch.optim.Optimizer], torch.optim.lr_scheduler.LRScheduler]"
)
Converts: TypeAlias = "Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]"


_Given = TypeVar("_Given")
_Made = TypeVar("_Made")


class HostSettings(NamedTuple):
    """What a `CPUDevice` was made with, for training.

    `converted` gives the inputs of modules from those that came.
    """

    optimizer_f: MakesOptimizer | None
    scheduler_f: MakesScheduler | None
    retain_graph: bool
    converted: Converts


class ModuleTrainer(HostTrainer):
    """Trains the modules of a `CPUDevice` in place.

    Raises `PyBudaError` if functions of the program make no optimizer, or no scheduler, of torch.
    """

    def __init__(self, workload: Workload, settings: HostSettings) -> None:
        self.work = workload
        self._converted = settings.converted
        self._modules = [module.on_host() for module in workload.modules]
        self._loss = None if workload.loss is None else workload.loss.on_host()
        own, optimizer, scheduler = named_on_host(workload.modules), None, None
        if own:
            module = (
                self._modules[0] if len(self._modules) == 1 else Chain(self._modules, PyBudaError)
            )
            optimizer = self._made(
                "optimizer_f", settings.optimizer_f, module, torch.optim.Optimizer
            )
        if optimizer is not None:
            kind = torch.optim.lr_scheduler.LRScheduler
            scheduler = self._made("scheduler_f", settings.scheduler_f, optimizer, kind)
            for model in (each for each in self._modules if isinstance(each, KerasModule)):
                optimizer.register_step_post_hook(lambda *_, model=model: model.write())
        keeps = settings.retain_graph
        super().__init__(
            HostRequest(workload.device, own, optimizer, scheduler, keeps, PyBudaError)
        )

    def prepare(self, batch: Samples, targets: Samples | None) -> Samples | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def forward(self, batch: Samples, targets: Samples | None) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module, or the losses, for a microbatch."""
        for module in (*self._modules, *filter(None, (self._loss,))):
            if not module.training:
                module.train()
        chain = Chain(self._modules, PyBudaError, batch.names) if self._modules else None

        def run(tensors: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
            given = self._converted(tensors)
            if self._loss is None:
                return () if chain is None else chain(*given)
            wanted = () if targets is None else targets.tensors
            graded = Graded(chain, self._loss, len(given), PyBudaError)
            outputs: tuple[torch.Tensor, ...] = graded(*given, *wanted)
            self._require_numbers(outputs)
            return outputs

        return self.run(run, batch.tensors, wanted=not self.work.first)

    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return a tuple of numbers."""
        return tuple(loss.item() for loss in losses)

    def _require_numbers(self, losses: Sequence[torch.Tensor]) -> None:
        for loss in losses:
            if loss.numel() != 1:
                raise PyBudaError(
                    f"the loss on device '{self.work.device}' is {[*loss.shape]}; one number was "
                    "expected"
                )

    def _made(
        self,
        what: str,
        function: Callable[[_Given], _Made] | None,
        given: _Given,
        kind: type[_Made],
    ) -> _Made | None:
        """Return what a function of the program makes. Raises `PyBudaError` for another type."""
        found: object = None if function is None else function(given)
        if function is not None and not isinstance(found, kind):
            raise PyBudaError(
                f"{what} of device '{self.work.device}' returned a {type(found).__name__}; one "
                f"torch {kind.__name__} was expected"
            )
        return found if isinstance(found, kind) else None


def named_on_host(modules: Sequence[Placeable]) -> Mapping[str, torch.nn.Parameter]:
    """Return the parameters by name, after that of their module where there are several."""
    return {
        name if len(modules) == 1 else f"{module.get_name()}.{name}": parameter
        for module in modules
        for name, parameter in module.parameters_by_name().items()
    }
