"""PyBuda's API over this compiler and its model of a device."""

from __future__ import annotations

from . import op
from ._C import DataFormat, MathFidelity
from ._C.backend_api import BackendDevice, BackendType
from .devices import CPUDevice, Device, TTDevice
from .errors import PyBudaError
from .module import Module, OnnxModule, PyBudaModule, PyTorchModule
from .parameter import Parameter
from .run import initialize_pipeline, run_forward, run_inference, shutdown
from .tensor import Tensor

__all__ = [
    "BackendDevice",
    "BackendType",
    "CPUDevice",
    "DataFormat",
    "Device",
    "MathFidelity",
    "Module",
    "OnnxModule",
    "Parameter",
    "PyBudaError",
    "PyBudaModule",
    "PyTorchModule",
    "TTDevice",
    "Tensor",
    "detect_available_devices",
    "initialize_pipeline",
    "op",
    "run_forward",
    "run_inference",
    "shutdown",
]


def detect_available_devices() -> list[BackendDevice]:
    """Return the architectures of the devices that there are: the model of one."""
    return [BackendDevice.Wormhole_B0]
