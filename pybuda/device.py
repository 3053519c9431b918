"""The base of devices: what modules are placed on, and what waits for them."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from .context import PipelineDevice, current
from .errors import PyBudaError
from .microbatch import Microbatch
from .placeable import Placeable, listed_modules
from .queues import Channel
from .training.trainer import Workload


class Device(PipelineDevice):
    """The base of devices: modules in order, and inputs that wait for the first of them."""

    def __init__(self, name: str, module: object = None) -> None:
        if not isinstance(name, str):
            raise PyBudaError(f"the name of a device came as a {type(name).__name__}")
        self.name = name
        self.modules = []
        self.loss = None
        self.inputs = Channel()
        self.targets = Channel()
        self.at_work = threading.Lock()
        if module is not None:
            self.modules = self._with(module)
        current().add(self)

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def place_module(self, module: object) -> None:
        """Add a module, or several of a tuple or list, to those that run here in sequence.

        What runs is ended first. Raises `PyBudaError` for what is no module, or is called as
        another one here.
        """
        modules = self._with(module)
        with self._changing():
            self.modules = modules

    def remove_modules(self) -> None:
        """Take all modules from this device, and drop what waits for them."""
        with self._changing():
            self.modules = []
            self.inputs.clear()
            self.forget()

    def place_loss_module(self, module: object) -> None:
        """Let `module` compute the loss from outputs and targets; only training runs it.

        What runs is ended first. Raises `PyBudaError` for what is no module, and if there is one.
        """
        (found,) = listed_modules([module])
        self._require_runs(found)
        if self.loss is not None:
            raise PyBudaError(
                f"device '{self.name}' has the loss module '{self.loss.get_name()}'; "
                "remove_loss_module first"
            )
        with self._changing():
            self.loss = found

    def remove_loss_module(self) -> None:
        """Take the loss module from this device, and drop the targets that wait for it."""
        with self._changing():
            self.loss = None
            self.targets.clear()

    def push_to_target_inputs(self, *tensors: object) -> None:
        """Add what the outputs of a microbatch are to be to what waits: tensors, or a tuple.

        They are copied. Raises `PyBudaError` for what is no tensor, and if this is not the last
        device.
        """
        current().require_last(self)
        found = Microbatch.of(tensors)
        if found.names:
            raise PyBudaError("targets have no names; push tensors, or a tuple of them")
        self.targets.add(found)

    def push_to_inputs(self, *tensors: object) -> None:
        """Add a microbatch to what waits: tensors, a tuple of them, or a dictionary by argument.

        The first dimension of each is the microbatch. They are copied. Raises `PyBudaError` for
        what is no tensor, and if this is not the first device.
        """
        current().require_first(self)
        self.inputs.add(Microbatch.of(tensors))

    def _work(self, first: bool) -> Workload:
        return Workload(self.name, tuple(self.modules), self.loss, first)

    @abstractmethod
    def _require_runs(self, module: Placeable) -> None:
        """Raise `PyBudaError` for a module that cannot run here."""

    def _with(self, module: object) -> list[Placeable]:
        """Return the modules with more. Raises `PyBudaError` for those that cannot be here."""
        modules = [*self.modules]
        for item in listed_modules(module):
            if any(item.get_name() == other.get_name() for other in modules):
                raise PyBudaError(
                    f"there is a module '{item.get_name()}' on device '{self.name}' already"
                )
            self._require_runs(item)
            modules.append(item)
        return modules

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """End what runs, and forget what was compiled here, before a change."""
        with current().lock:
            current().stop()
            self.close()
            yield
