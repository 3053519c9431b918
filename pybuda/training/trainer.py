"""What trains the modules of a device, whichever kind it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import torch

from pybuda.microbatch import Microbatch
from pybuda.placeable import Placeable

Gradients: TypeAlias = "tuple[torch.Tensor | None, ...]"
"""Of the outputs of a device, or of its inputs: None where no gradient flows."""


@dataclass(frozen=True)
class Workload:
    """What a device trains: modules in order, and the loss if it is the last device.

    `device` is its name; `first` says that nobody wants the gradients of its inputs.
    """

    device: str
    modules: tuple[Placeable, ...]
    loss: Placeable | None
    first: bool


class ModuleTrainer(ABC):
    """Forward and backward passes of microbatches, parameters and what updates them.

    Backward passes are of the forward passes in the order of these. Gradients add up until they are
    zeroed.
    """

    @abstractmethod
    def prepare(self, batch: Microbatch, targets: Microbatch | None) -> Microbatch | None:
        """Make ready for microbatches like this.

        Return one like those that it gives, None if that is unknown.
        """

    @abstractmethod
    def forward(self, batch: Microbatch, targets: Microbatch | None) -> tuple[torch.Tensor, ...]:
        """Return the outputs for a microbatch, or the losses, and keep what `backward` needs."""

    @abstractmethod
    def told(self, losses: tuple[torch.Tensor, ...]) -> object:
        """Return the item for the queue of losses."""

    @abstractmethod
    def backward(self, gradients: Gradients | None) -> Gradients:
        """Add up the gradients of parameters, and return those of the inputs.

        `gradients` are those of the outputs, None where these are losses.
        """

    @abstractmethod
    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""

    @abstractmethod
    def optimize(self) -> None:
        """Update the parameters. Without an optimizer, warn."""

    @abstractmethod
    def schedule(self) -> None:
        """Step the learning rate, where there is a scheduler."""

    @abstractmethod
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters, by name."""

    @abstractmethod
    def gradients(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the gradients so far, by the name of the parameter."""

    @abstractmethod
    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters, by name. Raises `PyBudaError` for what does not fit."""

    @abstractmethod
    def begin(self) -> None:
        """Forget forward passes whose backward passes have not come."""


def by_name(modules: Iterable[Placeable]) -> dict[str, torch.nn.Parameter]:
    """Return the parameters of several modules, by name.

    Names that several modules have get that of the module in front: `head.weight`.
    """
    named = [(module.get_name(), module.parameters_by_name()) for module in modules]
    owners: dict[str, set[int]] = {}
    for _, parameters in named:
        for name, parameter in parameters.items():
            owners.setdefault(name, set()).add(id(parameter))
    return {
        name if len(owners[name]) == 1 else f"{module}.{name}": parameter
        for module, parameters in named
        for name, parameter in parameters.items()
    }
