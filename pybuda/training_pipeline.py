"""Devices that train: microbatches go forward through them, gradients backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sambahost.training_pipeline import (
    Api,
    TrainingDevice,
    TrainingPipeline,
    TrainingQueues,
    require_trains,
)
from sambahost.watcher import Watcher

from .config import compiler
from .device import Device
from .errors import PyBudaError
from .microbatch import Microbatch, told
from .tensor import Tensor, tensors
from .training.on_device import DeviceTrainer
from .training.trainer import by_name
from .verifying import VerifyConfig

Checkpoint: TypeAlias = dict[str, Tensor]
"""Parameters of a device by name."""
API = Api(told, tensors, Microbatch, PyBudaError, compiler().tell_idle)


def pipeline_of(
    devices: Sequence[Device], queues: TrainingQueues, verified: VerifyConfig | None
) -> TrainingPipeline:
    """Return devices in order, of which the last one has a loss, and what verifies them.

    Raises `PyBudaError` where the loss is missing or on another device.
    """
    losses = [each.name for each in devices if each.loss is not None]
    placed = {each.name: [*each.modules, *filter(None, (each.loss,))] for each in devices}
    require_trains(losses, {name: by_name(own) for name, own in placed.items()}, PyBudaError)
    at_work = [_at_work(device, device is devices[0], verified) for device in devices]
    return TrainingPipeline(at_work, devices[0].inputs, devices[-1].targets, queues, API)


def _at_work(device: Device, first: bool, verified: VerifyConfig | None) -> TrainingDevice:
    trainer, watcher = device.trainer(first), None
    if verified is not None and isinstance(trainer, DeviceTrainer):
        watcher = Watcher(trainer, verified.watched())
    return TrainingDevice(device.name, trainer, watcher)
