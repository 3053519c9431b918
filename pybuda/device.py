"""Devices: what modules are placed on, what waits for them, and all that there are."""

from __future__ import annotations

import queue
import threading
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NoReturn

import torch

from sambahost.crew import Channel
from sambahost.driven import AnyPipeline, Driven
from sambahost.golden import GoldenRule
from sambahost.samples import Samples
from sambahost.training_pipeline import TrainingPipeline

from .config import CompileSettings, warn_of_idle
from .errors import PyBudaError, counted, listed, refuse
from .microbatch import Microbatch
from .placeable import Placeable, listed_modules
from .tensor import Tensor, tensors, to_torch
from .training.on_device import DeviceTrainer
from .training.on_host import ModuleTrainer
from .training.trainer import Workload
from .verifying import VerifyConfig


class Device(Driven):
    """The base of devices: modules in order, and inputs that wait for the first of them.

    `mp_context` changes nothing, which a warning says: devices are threads.
    """

    raises = PyBudaError
    is_even = False
    _trainer: DeviceTrainer | ModuleTrainer | None = None
    verified: VerifyConfig | None = None

    def __init__(self, name: str, mp_context: object = None, module: object = None) -> None:
        super().__init__()
        warn_of_idle(mp_context=mp_context)
        if not isinstance(name, str):
            raise PyBudaError(f"the name of a device came as a {type(name).__name__}")
        self.name = name
        self.modules: list[Placeable] = []
        self.loss: Placeable | None = None
        self.inputs: Channel[Samples] = Channel()
        self.targets: Channel[Samples] = Channel()
        self.at_work = threading.Lock()
        if module is not None:
            self.modules = self._with(module)
        current().add(self)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise `AttributeError`, which says what there is instead."""
        refuse(type(self).__name__, name, {}, (n for n in dir(type(self)) if n[0] != "_"))

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
        current().require_end(self, first=False)
        found = Microbatch.of(tensors)
        if found.names:
            raise PyBudaError("targets have no names; push tensors, or a tuple of them")
        self.targets.add(found)

    def push_to_inputs(self, *tensors: object) -> None:
        """Add a microbatch to what waits: tensors, a tuple of them, or a dictionary by argument.

        The first dimension of each is the microbatch. They are copied. Raises `PyBudaError` for
        what is no tensor, and if this is not the first device.
        """
        current().require_end(self, first=True)
        self.inputs.add(Microbatch.of(tensors))

    def sync(self) -> None:
        """Return when devices have done what they were told. Raises what failed in one."""
        current().sync()

    def get_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Return what `pybuda.get_parameter_checkpoint` has of this device."""
        return tensors((self._at_training() or self).parameters())

    get_all_parameters = pop_parameter_checkpoint = get_parameter_checkpoint

    def get_parameter_gradients(self) -> dict[str, Tensor]:
        """Return the gradients so far by parameter. Raises `PyBudaError` if nothing trains."""
        if (trainer := self._at_training()) is None:
            raise PyBudaError(f"device '{self.name}' does not train: there are no gradients")
        return tensors(trainer.gradients())

    @abstractmethod
    def infer(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""

    def golden(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        """Return what torch gives for a microbatch."""
        return self.infer(batch)

    def verify(  # a CPU runs torch itself
        self, batch: Samples, found: Sequence[torch.Tensor], rule: GoldenRule
    ) -> None:
        """Raise `AssertionError` where the outputs for a microbatch are not near torch's."""

    @abstractmethod
    def prepare(self, batch: Samples) -> Samples | None:
        """Make ready for microbatches like this; return what it gives, None if that is unknown."""

    @abstractmethod
    def trainer(self, first: bool) -> DeviceTrainer | ModuleTrainer:
        """Return what trains the modules from now on; nobody wants gradients before the `first`."""

    @abstractmethod
    def parameters(self) -> Mapping[str, torch.Tensor]:
        """Return copies of the parameters, as they are trained or else as modules have them."""

    def refresh(self) -> None:  # a CPU has nothing to do for it
        """See to it that runs from now on use the parameters that modules have now."""

    @abstractmethod
    def close(self) -> None:
        """Forget what was compiled, but what was trained, and give back its memory."""

    def is_current(self) -> bool:
        """Return whether what trains here was compiled of modules as they are now."""
        return True

    def forget(self) -> None:  # a CPU has nothing to do for it
        """Forget what was trained here and is not in the modules of the program."""

    def _at_training(self) -> DeviceTrainer | ModuleTrainer | None:
        """Return what trains here, after what was begun before; None if nothing does."""
        if not isinstance(current().pipeline, TrainingPipeline):
            return None
        self.sync()
        return self._trainer

    def _among(self) -> tuple[AnyPipeline, int]:
        context = current()
        index = None if context.pipeline is None else context.pipeline.position(self.name)
        if context.pipeline is None or index is None:
            raise PyBudaError(
                f"device '{self.name}' is in no pipeline; call initialize_pipeline first"
            )
        return context.pipeline, index

    def _is_well(self) -> bool:
        context = current()
        failed = context.pipeline is not None and context.pipeline.crew.error is not None
        return self in context.devices and not failed

    def _overwrite(self, values: Mapping[str, object]) -> None:
        """Overwrite parameters by name. Raises `PyBudaError` for what does not fit."""
        _, index = self._in_training()
        given = {name: to_torch(value) for name, value in values.items()}
        current().overwrite({index: given})

    def _torch(self, value: object) -> torch.Tensor:
        return to_torch(value)

    def _told(self, tensors: Sequence[torch.Tensor]) -> tuple[Tensor, ...]:
        return tuple(map(Tensor, tensors))

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

    def changed(self) -> None:
        """End what runs, and forget what was compiled here."""
        with self._changing():
            pass

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """End what runs, and forget what was compiled here, before a change."""
        with current().lock:
            current().stop()
            self.close()
            yield


@dataclass(frozen=True)
class Ready:
    """A pipeline, and what it was made for: verification, `changes` so far, settings."""

    pipeline: AnyPipeline
    verified: VerifyConfig | None
    changes: int
    settings: CompileSettings


class Context:
    """Devices, how often they or what is on them have changed, and the pipeline that they run in.

    `intermediates` gets what programs ask for of operators. `pipeline` is what devices run in now,
    `ready` the one that was made last.
    Changes and calls that run something wait for one another by `lock`.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.devices: list[Device] = []
        self.intermediates: queue.Queue[object] = queue.Queue()
        self.changes = 0
        self.pipeline: AnyPipeline | None = None
        self.ready: Ready | None = None

    def add(self, device: Device) -> None:
        """Add a device at the end. Raises `PyBudaError` for a name that another one has."""
        with self.lock:
            if any(device.name == other.name for other in self.devices):
                raise PyBudaError(f"there is a device '{device.name}' already")
            self.stop()
            self.devices.append(device)

    def stop(self) -> None:
        """End what runs: devices, or what is on them, are about to change."""
        self.changes += 1
        if self.pipeline is not None:
            self.pipeline.crew.stop()
            self.pipeline = None

    def close(self, devices: Iterable[Device]) -> None:
        """End what runs, and forget what `devices` have compiled."""
        self.stop()
        for device in devices:
            device.close()

    def sync(self) -> None:
        """Return when devices have done what they were told. Raises what failed in one."""
        with self.lock:
            if self.pipeline is None:
                return
            if isinstance(self.pipeline, TrainingPipeline):
                self.pipeline.take_writes()  # of which checkpoints tell
            wait = self.pipeline.crew.ask(lambda _index: None)
        wait()

    def overwrite(self, values: Mapping[int, Mapping[str, torch.Tensor]]) -> None:
        """Overwrite parameters of devices, by their indices, after what came before.

        Raises `PyBudaError` for what does not fit.
        """
        with self.lock:
            assert isinstance(self.pipeline, TrainingPipeline)
            updated = self.pipeline.update(values)
        for error in updated():
            if error is not None:
                raise error

    def require_end(self, device: Device, first: bool) -> None:
        """Raise `PyBudaError` for what is not to be pushed to `device`: inputs, or else targets."""
        devices = self.working(training=True)
        what, which, index = ("inputs", "first", 0) if first else ("targets", "last", -1)
        if devices and devices[index] is not device and (device in devices or not first):
            raise PyBudaError(
                f"{what} came for device '{device.name}'; the {which} one, "
                f"'{devices[index].name}', gets them"
            )

    def working(self, training: bool) -> list[Device]:
        """Return the devices that have something to run, in order: in training, losses too."""
        return [
            device
            for device in self.devices
            if device.modules or (training and device.loss is not None)
        ]


_context = Context()
"""Programs make devices and never name the pipeline that these are of: there is one."""


def current() -> Context:
    """Return what there is now."""
    return _context


def chips_of(number: int | None, chosen: Sequence[int] | None) -> tuple[int, ...]:
    """Return the chips. Raises `PyBudaError` where the number is not that of those chosen."""
    if number is not None and counted("num_chips", number) > 4096:  # far more than any board has
        raise PyBudaError(f"num_chips is {number}; a device has 4096 at most")
    if chosen is not None:
        found = listed("chip_ids", chosen, (int, tuple), "numbers")
        odd = [each for each in found if isinstance(each, bool) or str(each)[0] == "-"]
        if odd or not found or len({*found}) < len(found):
            raise PyBudaError(f"chip_ids is {chosen}; give whole numbers from 0 on, each once")
        if number not in (None, len(chosen)):
            raise PyBudaError(f"num_chips is {number}, chip_ids are {len(chosen)}")
        return tuple(chosen)
    return tuple(range(number or 1))
