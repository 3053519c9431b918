"""Devices: what modules are placed on. One runs compiled programs, one runs torch."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeVar

import onnx
import torch

from ._C.backend_api import BackendDevice, BackendType
from .context import current
from .errors import PyBudaError
from .microbatch import Microbatch, joined
from .placeable import Placeable, Version, listed_modules
from .queues import Channel
from .recorded import Chain, leaves
from .stage import Stage

_Member = TypeVar("_Member", bound=Enum)
_NARROW = (torch.float16, torch.bfloat16)


class Device(ABC):
    """The base of devices: modules in order, and inputs that wait for the first of them."""

    def __init__(self, name: str, module: object = None) -> None:
        if not isinstance(name, str):
            raise PyBudaError(f"the name of a device came as a {type(name).__name__}")
        self.name = name
        self.modules: list[Placeable] = []
        self.inputs: Channel[Microbatch] = Channel()
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

    def push_to_inputs(self, *tensors: object) -> None:
        """Add a microbatch to what waits: tensors, a tuple of them, or a dictionary by argument.

        The first dimension of each is the microbatch. They are copied. Raises `PyBudaError` for
        what is no tensor, and if this is not the first device.
        """
        current().require_first(self)
        self.inputs.add(Microbatch.of(tensors))

    @abstractmethod
    def run(self, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""

    @abstractmethod
    def prepare(self, batch: Microbatch) -> Microbatch | None:
        """Make ready for microbatches like this; return what it gives, None if that is unknown."""

    @abstractmethod
    def refresh(self) -> None:
        """See to it that runs from now on use the parameters that modules have now."""

    @abstractmethod
    def close(self) -> None:
        """Forget what was compiled, and give back its memory."""

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


class CPUDevice(Device):
    """Runs PyTorch modules as they are, in evaluation mode, on whole microbatches.

    `input_dtypes` are the types that inputs are converted to; without them 16-bit floating-point
    ones become 32-bit ones.
    """

    def __init__(
        self,
        name: str,
        *,
        module: object = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
    ) -> None:
        self._dtypes = None if input_dtypes is None else tuple(input_dtypes)
        super().__init__(name, module)

    def run(self, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for a microbatch."""
        chain = Chain((item.on_host() for item in self.modules), batch.names)
        if any(part.training for part in chain.modules()):
            chain.eval()
        with self.at_work, torch.no_grad():
            return leaves(chain(*self._converted(batch.tensors)))

    def prepare(self, batch: Microbatch) -> Microbatch | None:
        """Return None: what modules give is known when they run, which may change them."""
        return None

    def refresh(self) -> None:
        """Do nothing: torch runs the modules themselves."""

    def close(self) -> None:
        """Do nothing: nothing was compiled."""

    def _require_runs(self, module: Placeable) -> None:
        module.on_host()

    def _converted(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self._dtypes is None:
            return [t.float() if t.dtype in _NARROW else t for t in tensors]
        if len(self._dtypes) != len(tensors):
            raise PyBudaError(
                f"device '{self.name}' has {len(self._dtypes)} input_dtypes, {len(tensors)} inputs "
                "came"
            )
        return [t.to(dtype) for t, dtype in zip(tensors, self._dtypes, strict=True)]


class TTDevice(Device):
    """Runs modules that are compiled for samples of one shape, sample after sample.

    `num_chips` and `chip_ids` say which chips it is, `arch` and `devtype` what kind: all are the
    one model of a device.
    """

    def __init__(
        self,
        name: str,
        num_chips: int | None = None,
        chip_ids: Sequence[int] | None = None,
        arch: BackendDevice | None = None,
        devtype: BackendType | None = None,
        *,
        module: object = None,
    ) -> None:
        self.chip_ids = _chips(num_chips, chip_ids)
        self.arch = _kind("arch", arch, BackendDevice.Wormhole_B0)
        self.devtype = _kind("devtype", devtype, BackendType.Silicon)
        self._stages: list[Stage] = []
        self._versions: list[Version] = []
        self._names: tuple[str, ...] = ()
        super().__init__(name, module)

    def compile_for(self, batch: Microbatch) -> None:
        """Compile the modules for samples like those of `batch`, unless they are.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        if self._stages:
            return
        if not self.modules:
            raise PyBudaError(f"device '{self.name}' has no modules; place_module")
        self._versions, self._names = self._present(), batch.names
        sample: Sequence[torch.Tensor] = next(batch.samples())
        stages: list[Stage] = []
        try:
            for part in _parts(self.modules, batch.names):
                stages.append(Stage(part, sample, () if stages else batch.names))
                sample = stages[-1].forward(sample)
        except BaseException:
            for stage in stages:
                stage.close()
            raise
        self._stages = stages

    def run(self, batch: Microbatch) -> tuple[torch.Tensor, ...]:
        """Return the outputs of the last module for all samples, each computed by itself."""
        with self.at_work:
            self.compile_for(batch)
            ordered = batch.ordered(self._names)
            return joined([self._sample(sample) for sample in ordered.samples()])

    def prepare(self, batch: Microbatch) -> Microbatch | None:
        """Compile for microbatches like this, and return what it gives."""
        return Microbatch(self.run(batch))

    def refresh(self) -> None:
        """Forget what was compiled if parameters have changed since: they are part of it."""
        with self.at_work:
            pairs = zip(self._versions, self._present(), strict=True) if self._stages else ()
            if not all(compiled.is_that_of(now) for compiled, now in pairs):
                self.close()

    def close(self) -> None:
        """Forget what was compiled, and give back its memory."""
        for stage in self._stages:
            stage.close()
        self._stages = []

    def _present(self) -> list[Version]:
        return [module.version() for module in self.modules]

    def _sample(self, sample: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        for stage in self._stages:
            sample = stage.forward(sample)
        return sample

    def _require_runs(self, module: Placeable) -> None:
        """Every module runs here."""


def _parts(modules: Sequence[Placeable], names: Sequence[str]) -> list[Chain | onnx.ModelProto]:
    """Return what is compiled: ONNX models each alone, modules of torch between them together."""
    parts: list[Chain | onnx.ModelProto] = []
    waiting: list[torch.nn.Module] = []
    for module in modules:
        part = module.part()
        if isinstance(part, torch.nn.Module):
            waiting.append(part)
            continue
        if waiting:
            parts.append(Chain(waiting, names if not parts else ()))
            waiting = []
        parts.append(part)
    return [*parts, Chain(waiting, names if not parts else ())] if waiting else parts


def _chips(number: int | None, chosen: Sequence[int] | None) -> tuple[int, ...]:
    """Return the chips. Raises `PyBudaError` where the number is not that of those chosen."""
    if chosen is not None:
        if number not in (None, len(chosen)):
            raise PyBudaError(f"num_chips is {number}, chip_ids are {len(chosen)}")
        return tuple(chosen)
    if number is not None and number < 0:
        raise PyBudaError(f"num_chips is {number}")
    return tuple(range(number or 1))


def _kind(name: str, given: _Member | None, default: _Member) -> _Member:
    """Return what was given for `name`. Raises `PyBudaError` for what is of another type."""
    if given is not None and not isinstance(given, type(default)):
        raise PyBudaError(f"{name} is {given!r}; a {type(default).__name__} was expected")
    return given or default
