"""The session of an application: its PEF, its tensors on the device, and its modes."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor, nn

from sambaflow.sambacollections import OrderedSet

from .errors import SambaError
from .graph_session import GraphSession, Optimizers, listed
from .tensor import SambaTensor, to_torch
from .transfer import buffers_of, states_of, to_device, to_host


class SambaSession(GraphSession):
    """Compiles models into PEFs and runs them; `sambaflow.samba.session` is the one to use.

    `pef_path` is a PEF to load at once; without one `trace_graph` loads it.
    """

    def __init__(self, pef_path: str = "") -> None:
        super().__init__()
        if pef_path:
            self._load(pef_path)

    @staticmethod
    def reset(pef_path: str = "") -> None:
        """Begin anew: forget the PEF and all traced tensors, and load `pef_path` if it is given."""
        session._clear()
        if pef_path:
            session._load(pef_path)

    # What the PEF has.

    def get_argin_names(self) -> OrderedSet[str]:
        """Return the names of the hyperparameters that `run` takes."""
        return OrderedSet(self._hyperparameters().names)

    def get_dropout_rate_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that are rates of dropout."""
        return list(self._hyperparameters().rates)

    def get_dropout_seed_argin_names(self) -> list[str]:
        """Return the names of the hyperparameters that seed dropout."""
        return list(self._hyperparameters().seeds)

    def get_section_types(self) -> set[str]:
        """Return the types of the sections in the PEF, such as FWD and OPT."""
        return {section.type.name for section in self._loaded().program.sections}

    def get_weight_names(self) -> list[str]:
        """Return the names of the parameters in the PEF."""
        return self._loaded().weights()

    # Tensors on the device.

    def get_samba_tensor_by_name(self, name: str) -> SambaTensor:
        """Return the traced tensor `name`; what the device holds of it is not fetched.

        Raises `SambaError` if nothing of that name was traced.
        """
        found = self.traced_tensors.get(name)
        if found is None:
            from pef.wording import did_you_mean

            raise SambaError(
                f"no tensor '{name}' was traced{did_you_mean(name, self.traced_tensors)}"
            )
        return found

    def get_tensors(self, samba_tensors: Iterable[SambaTensor]) -> tuple[SambaTensor, ...]:
        """Return what the device holds of `samba_tensors`."""
        return self.get_tensors_by_name([tensor.sn_name for tensor in samba_tensors])

    def get_tensors_by_name(self, names: Iterable[str]) -> tuple[SambaTensor, ...]:
        """Return what the device holds under `names`."""
        device = self._loaded()
        return tuple(device.result(name, {}) for name in names)

    def update_tensor(self, name: str, tensor: Tensor | None) -> None:
        """Give the traced tensor `name` new values on the host; None forgets the tensor."""
        found = self.get_samba_tensor_by_name(name)
        if tensor is None:
            del self.traced_tensors[name]
        else:
            found.data = to_torch(tensor)

    def to_device(self) -> None:
        """Copy all traced tensors that have values to the device."""
        to_device(self._loaded(), self._with_values())

    @classmethod
    def to_cpu(
        cls,
        model: nn.Module,
        optims: Optimizers = None,
        inplace: bool = False,
    ) -> None:
        """Copy parameters, buffers and the state of optimizers from the device to the host."""
        to_host(session._loaded(), states_of(model, listed(optims)), inplace=inplace)

    @classmethod
    def to_cpu_(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy like `to_cpu` into the memory that the tensors have."""
        cls.to_cpu(model, optims, inplace=True)

    @classmethod
    def to_rdu(cls, model: nn.Module, optims: Optimizers = None) -> None:
        """Copy parameters, buffers and the state of optimizers from the host to the device."""
        to_device(session._loaded(), states_of(model, listed(optims)))

    @classmethod
    def sync_buffers_to_cpu(cls, model: nn.Module, inplace: bool = False) -> None:
        """Copy the buffers of `model` from the device to the host."""
        to_host(session._loaded(), buffers_of(model), inplace=inplace)

    @classmethod
    def sync_buffers_to_rdu(cls, model: nn.Module) -> None:
        """Copy the buffers of `model` from the host to the device."""
        to_device(session._loaded(), buffers_of(model))

    def _with_values(self) -> list[tuple[str, Tensor]]:
        return [(name, tensor) for name, tensor in self.traced_tensors.items() if tensor.has_data]


session = SambaSession()
