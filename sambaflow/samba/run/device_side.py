"""The device's side of a session: the PEF that is loaded, what it holds, and how long it takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from sambaflow.samba import profiler as events
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import PATH, instance, some
from sambaflow.samba.arguments.options import Optimizers, listed
from sambaflow.samba.errors import SambaError
from sambaflow.samba.profiler import Profiler, finish, measuring, profiled
from sambaflow.samba.tensors.current import DeviceMemory
from sambaflow.samba.tensors.tensor import SAMBA_TENSOR, SambaTensor
from sambaflow.samba.trace.models import TracedModels, buffers_of
from sambaflow.sambacollections import OrderedSet

from .runtime_profile import RuntimeProfile

if TYPE_CHECKING:
    from .device import SambaDevice
    from .loaded import LoadedPef

_TENSORS = some(SAMBA_TENSOR, "a list of SambaTensors")


class DeviceSide:
    """Holds at most one PEF, which runs what is among `models`, and copies tensors from and to it.

    `pef` is None before one is loaded. `profiler` measures what the host does while it is switched
    on, `runtime_profile` the sections.
    """

    def __init__(self, models: TracedModels) -> None:
        self.pef: LoadedPef | None = None
        self.profiler = Profiler()
        self.runtime_profile = RuntimeProfile()
        self._models = models

    # What the PEF has.

    @property
    def device(self) -> SambaDevice | None:
        """The device with the PEF, None before one is loaded."""
        return self.pef.device if self.pef else None

    @property
    def memory(self) -> DeviceMemory:
        """The memory of the device. Raises `SambaError` before a PEF is loaded."""
        return self.loaded().device

    @checked()
    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the hyperparameters that `run` takes."""
        return OrderedSet(self.loaded().hyperparameters.names)

    @checked()
    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that are rates of dropout."""
        return list(self.loaded().hyperparameters.rates)

    @checked()
    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that seed dropout."""
        return list(self.loaded().hyperparameters.seeds)

    @checked()
    def get_section_types(self) -> set[str]:
        """Return the types of the sections in the PEF, such as FWD and OPT."""
        return {section.type.name for section in self.loaded().device.program.sections}

    @checked()
    def get_weight_names(self) -> list[str]:
        """Return the names of the parameters in the PEF."""
        return self.loaded().device.host.weights()

    # Copies between the host and the device.

    @checked(samba_tensors=_TENSORS)
    def get_tensors(self, samba_tensors: Iterable[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Return what the device holds of `samba_tensors`."""
        return self.get_tensors_by_name([tensor.sn_name for tensor in samba_tensors])

    @checked()
    def get_tensors_by_name(self, names: Iterable[str]) -> tuple[SambaTensor, ...]:
        """Return what the device holds under `names`."""
        return self.loaded().named(names)

    @checked()
    def to_device(self) -> None:
        """Copy all traced tensors that have values to the device.

        Where others of these names and shapes were converted since (`from_torch_model_`,
        `from_torch_tensor`), those that were converted last.
        """
        self.loaded().send(self._models.with_values())

    @checked()
    def to_cpu(self, model: nn.Module, optims: Optimizers = None, inplace: bool = False) -> None:
        """Copy parameters, buffers and the state of optimizers from the device to the host.

        Before a PEF is loaded the host has all there is, and nothing happens.
        """
        pef = self.pef
        if pef is not None:
            optimizers = listed(optims)
            pef.require_known(model, optimizers)
            pef.fetch_states(model, optimizers, inplace=inplace)

    @checked()
    def to_cpu_(self, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy like `to_cpu` into the memory that the tensors have."""
        self.to_cpu(model, optims, inplace=True)

    @checked()
    def to_rdu(self, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy parameters, buffers and the state of optimizers from the host to the device."""
        pef, optimizers = self.loaded(), listed(optims)
        pef.require_known(model, optimizers)
        pef.send_states(model, optimizers)

    @checked()
    def sync_buffers_to_cpu(self, model: nn.Module, inplace: bool = False) -> None:
        """Copy the buffers of `model` from the device to the host, once a PEF is loaded."""
        pef = self.pef
        if pef is not None:
            pef.require_known(model, ())
            pef.fetch(buffers_of(model), inplace=inplace)

    @checked()
    def sync_buffers_to_rdu(self, model: nn.Module) -> None:
        """Copy the buffers of `model` from the host to the device."""
        pef = self.loaded()
        pef.require_known(model, ())
        pef.send(buffers_of(model))

    @checked(optimizer=instance(Optimizer, "an optimizer"))
    def fetch_states(self, optimizer: Optimizer) -> None:
        """Copy the state of an optimizer from the device. Raises `SambaError` without a PEF."""
        if self.pef is None:
            raise SambaError("no PEF is loaded, so there is no state to copy; call trace_graph")
        self.pef.fetch_optimizer(optimizer)

    # Profiles.

    @checked(filename=PATH.or_none())
    @contextmanager
    def samba_profile(self, filename: str | None = None) -> Iterator[Profiler]:
        """Measure what the host does in the block; the table goes to a file, or is printed."""
        with profiled(self.profiler, filename) as profiler:
            yield profiler

    @checked()
    def start_samba_profile(self) -> None:
        """Begin to measure what the host does."""
        self.profiler.start_profile()

    @checked(filename=PATH.or_none())
    def end_samba_profile(self, filename: str | None = None) -> None:
        """Stop measuring; the table goes to a file, or is printed."""
        finish(self.profiler, filename)

    @checked()
    def start_runtime_profile(self, timer_enabled: bool = True) -> None:
        """Begin to measure sections and Python's functions, if ENABLE_RUNTIME_PERF is set.

        It is SUMMARY or DETAILED. `timer_enabled` prints how long it was between start and end.
        """
        self.runtime_profile.start(timer_enabled)

    @checked(log_file=PATH)
    def end_runtime_profile(self, log_file: str = "cprofile_tmp.log") -> None:
        """Stop measuring, and write the tables to `log_file`."""
        self.runtime_profile.end(log_file)

    # The PEF that is loaded.

    def loaded(self) -> LoadedPef:
        """Return the PEF that is loaded. Raises `SambaError` before one is."""
        if self.pef is None:
            raise SambaError(
                "no PEF is loaded; call samba.utils.trace_graph(model, inputs, optim, pef=...) "
                "before what runs on the device"
            )
        return self.pef

    def open(self, pef: str) -> LoadedPef:
        """Load a PEF in place of the one before."""
        self.close()
        with measuring(self.profiler, events.INIT_RUNTIME):
            # The runtime takes long to load: a process that only compiles does without.
            from .loaded import LoadedPef
        self.pef = LoadedPef(pef, self._models, self.profiler, self.runtime_profile)
        return self.pef

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Close what the block has opened if it fails: nothing may run on a PEF that misfits.

        What was there before has given way to it, with all that it had learned.
        """
        before = self.pef
        try:
            yield
        except BaseException:
            if self.pef is not before:
                self.close()
            raise

    def close(self) -> None:
        """Forget the PEF."""
        if self.pef is not None:
            self.pef.close()
        self.pef = None
