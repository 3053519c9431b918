"""PyBuda's API over this compiler and its model of a device."""

from __future__ import annotations

import sys
from typing import NoReturn

import sambahost  # noqa: F401  # before PyTorch, without which it says what to install
from pef.arguments import tell
from pef.misfits import require_kinds
from sambahost.absent_names import answer_for

from . import config, op, optimizers, pybudaglobal, query, schedulers, torch_schedulers, verify
from ._C import DataFormat, MathFidelity
from ._C.backend_api import BackendDevice, BackendType
from .config import (
    CompileDepth,
    CompilerConfig,
    PerfTraceLevel,
    set_chip_break,
    set_configuration_options,
    set_epoch_break,
)
from .cpu_device import CPUDevice
from .device import Device
from .errors import OF_MODULE, PyBudaError, refuse
from .image import TTDeviceImage
from .module import Module, OnnxModule, PyBudaModule, PyTorchModule, TFModule
from .optimizers import LAMB, LARS, SGD, Adam, AdamW
from .parameter import Parameter
from .run import (
    get_intermediates_queue,
    initialize_pipeline,
    pybuda_reset,
    run_forward,
    run_inference,
    set_device_pipeline,
    shutdown,
)
from .running import error_raised
from .tensor import Tensor
from .train import (
    get_loss_queue,
    get_parameter_checkpoint,
    get_parameter_gradients,
    run_backward,
    run_optimizer,
    run_schedulers,
    run_training,
    sync,
    update_device_parameters,
)
from .transformers import pipeline as _pipeline
from .tt_by_hand import DrivenTTDevice
from .tt_device import TTDevice
from .verifying import VerifyConfig

__all__ = [
    "LAMB", "LARS", "SGD", "Adam", "AdamW", "BackendDevice", "BackendType", "CPUDevice",
    "CompileDepth", "CompilerConfig", "DataFormat", "Device", "MathFidelity", "Module",
    "OnnxModule", "Parameter", "PerfTraceLevel", "PyBudaError", "PyBudaModule", "PyTorchModule",
    "TFModule", "TTDevice", "TTDeviceImage", "Tensor", "VerifyConfig", "config",
    "configure_mixed_precision", "detect_available_devices", "error_raised",
    "get_intermediates_queue", "get_loss_queue", "get_parameter_checkpoint",
    "get_parameter_gradients", "initialize_pipeline", "insert_buffering_nop", "insert_nop", "op",
    "optimizers", "override_dram_queue_placement", "override_op_size", "pybuda_reset",
    "pybudaglobal", "query", "run_backward", "run_forward", "run_inference", "run_optimizer",
    "run_schedulers", "run_training", "schedulers", "set_chip_break", "set_configuration_options",
    "set_device_pipeline", "set_epoch_break", "shutdown", "sync", "torch_schedulers",
    "update_device_parameters", "verify",
]  # fmt: skip


def __getattr__(name: str) -> NoReturn:
    """Raise `AttributeError`, which says what there is instead."""
    refuse(__name__, name, OF_MODULE, __all__)


override_op_size, insert_nop = config.override_op_size, config.insert_nop
override_dram_queue_placement = config.override_dram_queue_placement
insert_buffering_nop = config.insert_buffering_nop
_here = sys.modules[__name__]
for _path, _has in (("compile", config), ("run.api", _here), ("utils", pybudaglobal)):
    _owner, _, _own = f"{__name__}.{_path}".rpartition(".")  # as the original has it
    sys.modules[f"{_owner}.{_own}"] = vars(sys.modules[_owner])[_own] = _has


def detect_available_devices() -> list[BackendDevice]:
    """Return the architectures of the devices that there are: the model of one."""
    return [BackendDevice.Wormhole_B0]


_OTHERS = (config, op.loss, op.nn, optimizers, query, schedulers, torch_schedulers, verify)
tell(VerifyConfig, __name__)  # which tells of all that is wrong with its settings at once
for _each in (*_OTHERS, _pipeline, _here):
    tell(_each, __name__, require_kinds)
for _each in (*_OTHERS, op, pybudaglobal):
    answer_for(_each)
tell(DrivenTTDevice, __name__, require_kinds)
configure_mixed_precision = config.compiler().configure_mixed_precision  # now that it is told
config.configure_mixed_precision = configure_mixed_precision
for _name in __all__:  # as programs import them from the original's
    vars(sys.modules[f"{__name__}.run"]).setdefault(_name, vars(_here)[_name])
