"""What a session has of tensors: those that were traced, and what the device holds of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from pef.wording import did_you_mean
from sambaflow.sambacollections import OrderedSet
from sambahost.wording import misfit

from . import profiler as events
from .arguments.checked import checked
from .arguments.kinds import PATH, some
from .arguments.options import Optimizers, listed
from .errors import SambaError
from .graph import SambaGraph
from .optim.state import named_states
from .profiler import Profiler, finish, measuring, profiled
from .run.runtime_profile import RuntimeProfile
from .tensors.current import DeviceMemory, current
from .tensors.tensor import SAMBA_TENSOR, SambaTensor, to_torch
from .tensors.tensor_table import TensorTable
from .trace.models import TracedModels
from .trace.states import buffers_of, states_of

if TYPE_CHECKING:
    from .run.device import Device
    from .run.loaded import LoadedPef

_TENSORS = some(SAMBA_TENSOR, "a list of SambaTensors")


class SessionMemory:
    """Holds the models that were traced and at most one PEF, and copies tensors between them."""

    def __init__(self) -> None:
        self.profiler = Profiler()
        """Measures what the host does, while it is switched on."""
        self.runtime_profile = RuntimeProfile()
        self._pef: LoadedPef | None = None
        self._forget()

    # What the PEF has.

    @property
    def device(self) -> Device | None:
        """The device with the PEF, None before one is loaded."""
        return self._pef.device if self._pef else None

    @property
    def memory(self) -> DeviceMemory:
        """The memory of the device. Raises `SambaError` before a PEF is loaded."""
        return self._loaded().device

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the hyperparameters that `run` takes."""
        return OrderedSet(self._loaded().hyperparameters.names)

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that are rates of dropout."""
        return list(self._loaded().hyperparameters.rates)

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that seed dropout."""
        return list(self._loaded().hyperparameters.seeds)

    def get_section_types(self) -> set[str]:
        """Return the types of the sections in the PEF, such as FWD and OPT."""
        return {section.type.name for section in self._loaded().device.program.sections}

    def get_weight_names(self) -> list[str]:
        """Return the names of the parameters in the PEF."""
        return self._loaded().device.host.weights()

    # Traced tensors.

    @property
    def traced_tensors(self) -> TensorTable:
        """The tensors that were traced: a dict by name, or called, its tensors."""
        return self._models.tensors

    @traced_tensors.setter
    def traced_tensors(self, tensors: TensorTable) -> None:
        self._models.tensors = tensors

    _traced_tensors = traced_tensors

    @property
    def buffer_dict(self) -> TensorTable:
        """The buffers that were traced or converted, as SambaTensors on their memory, by name."""
        return self._models.buffers

    @buffer_dict.setter
    def buffer_dict(self, buffers: TensorTable) -> None:
        self._models.buffers = buffers

    @property
    def optim_dict(self) -> TensorTable:
        """The state of the optimizers that were traced, by name, in the memory that it has.

        Its values may be indexed: `optim_dict.values()[0].rdu()` copies one to the device.
        """
        return self._models.optimizer_states()

    def note_converted(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` stand for the traced one of its name, if it has that one's shape."""
        if isinstance(tensor, SambaTensor):  # others are what torch traces with
            self._models.note_converted(name, tensor)

    def note_buffer(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` be that of the buffer `name` in `buffer_dict`."""
        if isinstance(tensor, SambaTensor):
            self._models.buffers[name] = tensor

    @checked()
    def is_valid_aux_tensor_name(self, name: str) -> bool:
        """Return whether `add_aux_tensor` may be given `name`: a word that no traced tensor has."""
        return bool(name) and name not in self.traced_tensors

    @checked()
    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return the traced tensor `name`; what the device holds of it is not fetched.

        Raises `SambaError` if nothing of that name was traced.
        """
        found = self.traced_tensors.get(name)
        if found is None:
            raise SambaError(
                f"no tensor '{name}' was traced{did_you_mean(name, self.traced_tensors)}"
            )
        return found

    @checked()
    def update_tensor(self, name: str, tensor: Tensor | None) -> None:
        """Give the traced tensor `name` new values on the host; None forgets the tensor.

        Raises `SambaError` for values of another shape.
        """
        found = self.get_samba_tensor_by_name(name)
        if tensor is None:
            del self.traced_tensors[name]
        elif tensor.shape != found.shape:
            raise SambaError(misfit(name, (found.dtype, found.shape), tensor))
        else:
            found.data = to_torch(tensor)

    # Copies between the host and the device.

    @checked(samba_tensors=_TENSORS)
    def get_tensors(self, samba_tensors: Iterable[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Return what the device holds of `samba_tensors`."""
        return self.get_tensors_by_name([tensor.sn_name for tensor in samba_tensors])

    @checked()
    def get_tensors_by_name(self, names: Iterable[str]) -> tuple[SambaTensor, ...]:
        """Return what the device holds under `names`."""
        return self._loaded().named(names)

    def to_device(self) -> None:
        """Copy all traced tensors that have values to the device.

        Where others of these names and shapes were converted since (`from_torch_model_`,
        `from_torch_tensor`), those that were converted last.
        """
        self._loaded().send(self._models.with_values())

    @classmethod
    @checked()
    def to_cpu(cls, model: nn.Module, optims: Optimizers = None, inplace: bool = False) -> None:
        """Copy parameters, buffers and the state of optimizers from the device to the host.

        Before a PEF is loaded the host has all there is, and nothing happens.
        """
        pef = _session()._pef
        if pef is not None:
            optimizers = listed(optims)
            pef.require_known(model, optimizers)
            pef.fetch(states_of(model, optimizers), inplace=inplace)

    @classmethod
    @checked()
    def to_cpu_(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy like `to_cpu` into the memory that the tensors have."""
        cls.to_cpu(model, optims, inplace=True)

    @classmethod
    @checked()
    def to_rdu(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy parameters, buffers and the state of optimizers from the host to the device."""
        pef, optimizers = _session()._loaded(), listed(optims)
        pef.require_known(model, optimizers)
        pef.send(states_of(model, optimizers))

    @classmethod
    @checked()
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy the buffers of `model` from the device to the host, once a PEF is loaded."""
        pef = _session()._pef
        if pef is not None:
            pef.fetch(buffers_of(model), inplace=inplace)

    @classmethod
    @checked()
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy the buffers of `model` from the host to the device."""
        _session()._loaded().send(buffers_of(model))

    def fetch_states(self, optimizer: Optimizer) -> None:
        """Copy the state of an optimizer from the device. Raises `SambaError` without a PEF."""
        if self._pef is None:
            raise SambaError("no PEF is loaded, so there is no state to copy; call trace_graph")
        names = self._pef.parameter_names()
        self._pef.fetch(named_states([optimizer], names), inplace=False)

    # Profiles.

    @checked(filename=PATH.or_none())
    @contextmanager
    def samba_profile(self, filename: str | None = None) -> Iterator[Profiler]:
        """Measure what the host does in the block; the table goes to a file, or is printed."""
        with profiled(self.profiler, filename) as profiler:
            yield profiler

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

    def _loaded(self) -> LoadedPef:
        if self._pef is None:
            raise SambaError(
                "no PEF is loaded; call samba.utils.trace_graph(model, inputs, optim, pef=...) "
                "before what runs on the device"
            )
        return self._pef

    def _load(self, pef: str) -> LoadedPef:
        """Load a PEF in place of the one before, and of what was traced for that."""
        self._close()
        self._forget()
        return self._open(pef)

    def _open(self, pef: str) -> LoadedPef:
        """Load a PEF, and keep what was traced."""
        self._close()
        with measuring(self.profiler, events.INIT_RUNTIME):
            # The runtime takes long to load: a process that only compiles does without.
            from .run.loaded import LoadedPef
        self._pef = LoadedPef(pef, self._models, self.profiler, self.runtime_profile)
        return self._pef

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Close what the block has opened if it fails: nothing may run on a PEF that misfits.

        What was there before has given way to it, with all that it had learned.
        """
        before = self._pef
        try:
            yield
        except BaseException:
            if self._pef is not before:
                self._close()
            raise

    def _close(self) -> None:
        """Forget the PEF."""
        if self._pef is not None:
            self._pef.close()
        self._pef = None

    def _forget(self) -> None:
        """Forget what was traced."""
        self._models = TracedModels()
        self.graphs: dict[str, SambaGraph] = {}
        """The graphs that `compile_multigraph` compiles, in this order."""


def _session() -> SessionMemory:
    """Return the session of the process: applications call it by its class, too."""
    owner = current()
    assert isinstance(owner, SessionMemory)
    return owner
