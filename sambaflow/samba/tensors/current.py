"""The session whose device tensors are on: there is one in a process, and it says so here."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer


class DeviceMemory(Protocol):
    """What tensors ask of the device."""

    def read(self, name: str) -> Tensor:
        """Return a copy of what `name` holds."""

    def find(self, name: str) -> Tensor | None:
        """Return a copy of what `name` holds, None where it holds nothing now."""

    def write(self, name: str, value: Tensor) -> None:
        """Overwrite what `name` holds."""


class Owner(Protocol):
    """What tensors, models and optimizers ask of their session."""

    @property
    def memory(self) -> DeviceMemory:
        """The memory of the device. Raises `SambaError` before a PEF is loaded."""

    def note_converted(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` stand for the traced one of its name."""

    def note_buffer(self, name: str, tensor: Tensor) -> None:
        """Let `tensor` be the SambaTensor of the buffer `name`."""

    def fetch_states(self, optimizer: Optimizer) -> None:
        """Copy the state of an optimizer from the device. Raises `SambaError` without a PEF."""


class _Current:
    owner: Owner | None = None


def attach(owner: Owner) -> None:
    """Let `owner` be the session of this process."""
    _Current.owner = owner


def current() -> Owner:
    """Return the session of this process."""
    assert _Current.owner is not None, "sambaflow.samba attaches its session when it is imported"
    return _Current.owner
