"""The devices of this process, in the order in which they were made, and what runs on them."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Protocol

import torch

from .errors import PyBudaError
from .microbatch import Microbatch
from .placeable import Placeable
from .queues import Channel
from .training.trainer import ModuleTrainer


class PipelineDevice(ABC):
    """A device as a pipeline sees it."""

    name: str
    modules: list[Placeable]
    loss: Placeable | None
    inputs: Channel[Microbatch]
    targets: Channel[Microbatch]

    @abstractmethod
    def run(self, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""

    @abstractmethod
    def prepare(self, batch: Microbatch) -> Microbatch | None:
        """Make ready for microbatches like this; return what it gives, None if that is unknown."""

    @abstractmethod
    def trainer(self, first: bool) -> ModuleTrainer:
        """Return what trains the modules from now on; nobody wants gradients before the `first`."""

    @abstractmethod
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters, as they are trained or else as modules have them."""

    @abstractmethod
    def refresh(self) -> None:
        """See to it that runs from now on use the parameters that modules have now."""

    @abstractmethod
    def close(self) -> None:
        """Forget what was compiled, but what was trained, and give back its memory."""

    @abstractmethod
    def forget(self) -> None:
        """Forget what was trained here and is not in the modules of the program."""


class Stoppable(Protocol):
    """What runs on devices."""

    def stop(self) -> None:
        """End it, after the microbatches that devices are at."""


class Context:
    """Devices, how often they or what is on them have changed, and what runs on them.

    Changes and calls that run something wait for one another by `lock`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.devices: list[PipelineDevice] = []
        self.changes = 0
        self.running: Stoppable | None = None

    def add(self, device: PipelineDevice) -> None:
        """Add a device at the end. Raises `PyBudaError` for a name that another one has."""
        with self.lock:
            if any(device.name == other.name for other in self.devices):
                raise PyBudaError(f"there is a device '{device.name}' already")
            self.stop()
            self.devices.append(device)

    def stop(self) -> None:
        """End what runs: devices, or what is on them, are about to change."""
        self.changes += 1
        if self.running is not None:
            self.running.stop()
            self.running = None

    def require_last(self, device: PipelineDevice) -> None:
        """Raise `PyBudaError` for targets that are pushed to another device than the last."""
        last = next(reversed(self.working(training=True)), device)
        if last is not device:
            raise PyBudaError(
                f"targets came for device '{device.name}'; the last one, '{last.name}', gets them"
            )

    def working(self, training: bool) -> list[PipelineDevice]:
        """Return the devices that have something to run, in order: in training, losses too."""
        return [
            device
            for device in self.devices
            if device.modules or (training and device.loss is not None)
        ]

    def require_first(self, device: PipelineDevice) -> None:
        """Raise `PyBudaError` for inputs that are pushed to another device than the first."""
        devices = self.working(training=True)
        if device in devices[1:]:
            first = devices[0]
            raise PyBudaError(
                f"inputs came for device '{device.name}'; the first one, '{first.name}', gets them"
            )


_context = Context()
"""Programs make devices and never name the pipeline that these are of: there is one."""


def current() -> Context:
    """Return what there is now."""
    return _context
