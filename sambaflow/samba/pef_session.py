"""The PEF that a session has loaded, and what measures it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from .device import Device, DeviceMemory
from .distributed import Replicas
from .errors import SambaError
from .graphs_device import load_device, start_runtime
from .hyperparameters import Hyperparameters
from .profiler import Profiler
from .runtime_profile import RuntimeProfile

if TYPE_CHECKING:
    from sambarun import Selection

_NOTHING = nullcontext()


class PefSession:
    """Has at most one PEF on its device."""

    def __init__(self) -> None:
        self.profiler = Profiler()
        """Measures what the host does, while it is switched on."""
        self.runtime_profile = RuntimeProfile()
        self.device: Device | None = None
        self.hyperparameters: Hyperparameters | None = None
        self.inference = False
        self._replicas = Replicas(self.profiler)
        self._selections: dict[object, tuple[Selection, ...]] = {}

    @property
    def memory(self) -> DeviceMemory:
        """The memory of the device. Raises `SambaError` before a PEF is loaded."""
        return self._loaded()

    def _event(self, name: str) -> AbstractContextManager[None]:
        """Return what measures a block while the profiler is on."""
        return self.profiler.event(name) if self.profiler.enabled else _NOTHING

    def _open(self, pef: str) -> Device:
        """Load a PEF, and keep what was traced."""
        self._close()
        with self._event("SAMBA_INIT_RUNTIME"):
            start_runtime()
        with self._event("SAMBA_SET_PEF"):
            device = self.device = load_device(pef)
        self.hyperparameters = Hyperparameters(device.program)
        return device

    @contextmanager
    def _opening(self) -> Iterator[None]:
        """Close what the block has opened if it fails: nothing may run on a PEF that misfits.

        What was there before has given way to it, with all that it had learned.
        """
        before = self.device
        try:
            yield
        except BaseException:
            if self.device is not before:
                self._close()
            raise

    def _close(self) -> None:
        """Forget the PEF."""
        if self.device is not None:
            self.device.close()
        self.device = None
        self.hyperparameters = None
        self.inference = False
        self._replicas.part()
        self._selections = {}

    def _loaded(self) -> Device:
        if self.device is None:
            raise SambaError(
                "no PEF is loaded; call samba.utils.trace_graph(model, inputs, optim, pef=...) "
                "before what runs on the device"
            )
        return self.device

    def _hyperparameters(self) -> Hyperparameters:
        self._loaded()
        assert self.hyperparameters is not None
        return self.hyperparameters
