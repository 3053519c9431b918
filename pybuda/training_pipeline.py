"""Devices that train: microbatches go forward through them, gradients backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sambahost.training_pipeline import (
    Api,
    TrainingDevice,
    TrainingPipeline,
    TrainingQueues,
)
from sambahost.watcher import Watcher

from .device import Device
from .errors import PyBudaError
from .microbatch import Microbatch, told
from .tensor import Tensor, tensors
from .training.on_device import DeviceTrainer
from .training.trainer import by_name
from .verifying import VerifyConfig

Checkpoint: TypeAlias = dict[str, Tensor]
"""Parameters of a device by name."""
API = Api(told, tensors, Microbatch, PyBudaError)


def pipeline_of(
    devices: Sequence[Device], queues: TrainingQueues, verified: VerifyConfig | None
) -> TrainingPipeline:
    """Return devices in order, of which the last one has a loss, and what verifies them.

    Raises `PyBudaError` where the loss is missing or on another device.
    """
    _require_loss(devices)
    _require_own_parameters(devices)
    at_work = [_at_work(device, device is devices[0], verified) for device in devices]
    return TrainingPipeline(at_work, devices[0].inputs, devices[-1].targets, queues, API)


def _at_work(device: Device, first: bool, verified: VerifyConfig | None) -> TrainingDevice:
    trainer, watcher = device.trainer(first), None
    if verified is not None and isinstance(trainer, DeviceTrainer):
        watcher = Watcher(trainer, verified.watched())
    return TrainingDevice(device.name, trainer, watcher)


def _require_own_parameters(devices: Sequence[Device]) -> None:
    """Raise `PyBudaError` for a parameter on two devices, which would train it apart."""
    owners: dict[int, str] = {}
    for device in devices:
        modules = [*device.modules, *([] if device.loss is None else [device.loss])]
        for name, parameter in by_name(modules).items():
            other = owners.setdefault(id(parameter), device.name)
            if other != device.name and parameter.requires_grad:
                raise PyBudaError(
                    f"parameter '{name}' is on the devices '{other}' and '{device.name}', which "
                    "would each train it by themselves; place its modules on one"
                )


def _require_loss(devices: Sequence[Device]) -> None:
    *others, last = devices
    if last.loss is None:
        raise PyBudaError(
            f"device '{last.name}', the last one, has no loss module, and training needs one; "
            "place_loss_module"
        )
    for device in others:
        if device.loss is not None:
            raise PyBudaError(
                f"device '{device.name}' has a loss module, which belongs on the last one, "
                f"'{last.name}'; remove_loss_module"
            )
