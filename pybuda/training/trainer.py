"""What a device trains."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pybuda.placeable import Placeable
from sambahost.trained_values import named


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
    """Return the parameters of several modules, as `named` calls them."""
    return named((module.get_name(), module.parameters_by_name()) for module in modules)
