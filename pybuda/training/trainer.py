"""What a device trains, and what its parameters are called."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pybuda.placeable import Placeable


@dataclass(frozen=True)
class Workload:
    """What a device trains: modules in order, and the loss if it is the last device.

    `device` is its name; `first` says that nobody wants the gradients of its inputs.
    """

    device: str
    modules: tuple[Placeable, ...]
    loss: Placeable | None
    first: bool

    def placed(self) -> list[Placeable]:
        """Return the modules and the loss."""
        return [*self.modules, *filter(None, (self.loss,))]


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
