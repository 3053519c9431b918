"""Training on a `CPUDevice`: torch's own autograd and optimizers, on whole microbatches."""

from __future__ import annotations

import queue
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias, TypeVar

import torch

from pybuda.errors import PyBudaError
from pybuda.microbatch import told
from pybuda.placeable import Placeable
from sambahost.chains import Chain
from sambahost.host_trainer import HostRequest, HostTrainer
from sambahost.keras import KerasModule
from sambahost.samples import Gradients

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

    `traced` gets the gradients of backward passes. Raises `PyBudaError` if functions of the program
    make no optimizer, or no scheduler, of torch.
    """

    traced: queue.Queue[object] | None = None

    def __init__(self, workload: Workload, settings: HostSettings) -> None:
        self.work = workload
        modules = [module.on_host() for module in workload.modules]
        loss = None if workload.loss is None else workload.loss.on_host()
        own, optimizer, scheduler = named_on_host(workload.modules), None, None
        if own:
            module = modules[0] if len(modules) == 1 else Chain(modules, PyBudaError)
            made = partial(_made, workload.device)
            optimizer = made("optimizer_f", settings.optimizer_f, module, torch.optim.Optimizer)
        if optimizer is not None:
            kind = torch.optim.lr_scheduler.LRScheduler
            scheduler = made("scheduler_f", settings.scheduler_f, optimizer, kind)
            for model in (each for each in modules if isinstance(each, KerasModule)):
                optimizer.register_step_post_hook(lambda *_, model=model: model.write())
        how = (workload.first, settings.converted, settings.retain_graph, PyBudaError)
        made_of = (workload.device, modules, loss, own, optimizer, scheduler)
        super().__init__(HostRequest(*made_of, *how))

    def backward(self, gradients: Gradients | None) -> Gradients:
        """Run the backward pass of the oldest forward pass that waits for it."""
        found = super().backward(gradients)
        for passed in (gradients or (), found) if self.traced is not None else ():
            self.traced.put(told(t.clone() for t in passed if t is not None))  # type: ignore[union-attr]  # see above
        return found


def _made(
    device: str,
    what: str,
    function: Callable[[_Given], _Made] | None,
    given: _Given,
    kind: type[_Made],
) -> _Made | None:
    """Return what a function of the program makes. Raises `PyBudaError` for another type."""
    if function is None:
        return None
    found: object = function(given)
    if not isinstance(found, kind):
        raise PyBudaError(
            f"{what} of device '{device}' returned a {type(found).__name__}; one torch "
            f"{kind.__name__} was expected"
        )
    return found


def named_on_host(modules: Sequence[Placeable]) -> Mapping[str, torch.nn.Parameter]:
    """Return the parameters by name, after that of their module where there are several."""
    return {
        name if len(modules) == 1 else f"{module.get_name()}.{name}": parameter
        for module in modules
        for name, parameter in module.parameters_by_name().items()
    }
