"""What trains modules: `run_training` by itself, or the parts of which it is made."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from sambahost.training_pipeline import Loops, TrainingQueues

from .config import warn_of_idle
from .device import Device, current
from .errors import PyBudaError, counted, listed, require_queues
from .running import initialized_to_train, training_pipeline
from .tensor import SomeTensor, to_torch
from .training_pipeline import Checkpoint
from .verifying import asked_for


def run_training(
    epochs: int = 1,
    steps: int = 1,
    accumulation_steps: int = 1,
    microbatch_count: int = 1,
    checkpoint_queue: queue.Queue[object] | None = None,
    loss_queue: queue.Queue[object] | None = None,
    checkpoint_interval: int = 0,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: object = None,
) -> queue.Queue[object]:
    """Train the modules on all devices, and return the queue that gets checkpoints.

    In each epoch `steps` times: `accumulation_steps` times `microbatch_count` microbatches go
    forward and then backward, and the optimizers of all devices step. Gradients add up over a step;
    they are no averages. After each epoch schedulers step. Inputs are pushed by hand to the first
    device and targets to the last one, before or after the call, which does not wait for them. A
    checkpoint, a dictionary of parameters for each device, follows every `checkpoint_interval`
    steps, and the last one. Losses go to `loss_queue`, or to `get_loss_queue()`: an item for each
    microbatch. As long as devices and modules are the same, a call goes on with the queues and
    parameters of the first. What fails in a device is raised by `get` of both queues.

    Raises `PyBudaError` for a count of 0, and where there is no device, or no loss module.
    """
    warn_of_idle(_perf_trace=_perf_trace or None)
    loops = Loops(epochs, steps, accumulation_steps, microbatch_count, checkpoint_interval)
    for name, count in vars(loops).items():
        if not counted(name, count) and name != "checkpoint_interval":
            raise PyBudaError(f"{name} is 0; there is nothing to train")
    require_queues(checkpoint_queue=checkpoint_queue, loss_queue=loss_queue)
    context, verified = current(), asked_for(_verify_cfg)
    with context.lock:
        queues = partial(TrainingQueues.of, loss_queue, checkpoint_queue)
        pipeline = training_pipeline(context, queues, verified)
        first, targets = pipeline.waiting()
        if first is not None and targets is not None:
            pipeline.compile_for(first, targets)
        pipeline.train(loops, _sequential)
        return pipeline.queues.checkpoints


def run_backward(input_count: int = 1, zero_grad: bool = False, _sequential: bool = False) -> None:
    """Run the microbatches that went forward backward, in the order in which they did.

    `zero_grad` zeroes the gradients first, which add up else. Raises `PyBudaError` without a
    pipeline that trains.
    """
    count = counted("input_count", input_count)
    with initialized_to_train() as pipeline:
        pipeline.backward(count, bool(zero_grad), _sequential)


def run_optimizer(checkpoint: bool = False, _sequential: bool = False) -> None:
    """Step the optimizers of all devices; with `checkpoint`, put their parameters into the queue.

    Raises `PyBudaError` without a pipeline that trains.
    """
    with initialized_to_train() as pipeline:
        pipeline.optimize(bool(checkpoint), _sequential)


def run_schedulers(_sequential: bool = False) -> None:
    """Step the learning rates of all devices. Raises `PyBudaError` without one that trains."""
    with initialized_to_train() as pipeline:
        pipeline.schedule(_sequential)


def get_parameter_checkpoint(
    device: Device | None = None, _sequential: bool = False
) -> list[Checkpoint]:
    """Return copies of the parameters of `device`, or of all devices, by name, one dict for each.

    What was asked of devices before is done first. Names are torch's, and whole names in PyBuda
    modules; of a `TTDevice` only parameters that can be trained are there.
    """
    return [each.get_parameter_checkpoint() for each in _meant(device)]


def get_parameter_gradients(
    device: Device | None = None, _sequential: bool = False
) -> list[Checkpoint]:
    """Return copies of the gradients so far of `device`, or of all devices, by parameter.

    What was asked of devices before is done first. Raises `PyBudaError` without a pipeline that
    trains.
    """
    with initialized_to_train():
        pass  # there is one
    return [each.get_parameter_gradients() for each in _meant(device)]


def update_device_parameters(
    device: Device | None = None,
    parameters: Sequence[Mapping[str, SomeTensor]] = (),
    _sequential: bool = False,
) -> None:
    """Overwrite parameters of `device`, or of all devices, by name: a dictionary for each.

    What was asked of devices before is done first. Raises `PyBudaError` without a pipeline that
    trains, for another number of dictionaries, and for what does not fit.
    """
    context = current()
    with initialized_to_train() as pipeline:
        place = None if device is None else pipeline.position(device.name)
        if device is not None and place is None:
            raise PyBudaError(f"device '{device.name}' is no part of the pipeline that trains")
        places = [*range(pipeline.size)] if place is None else [place]
        listed("parameters", parameters, Mapping, "dictionaries, one for each device,")
        if len(parameters) != len(places):
            raise PyBudaError(
                f"{len(parameters)} dictionaries of parameters came for {len(places)} devices"
            )
        given: dict[int, Mapping[str, torch.Tensor]] = {
            place: {name: to_torch(value) for name, value in values.items()}
            for place, values in zip(places, parameters, strict=True)
        }
    context.overwrite(given)


def sync() -> None:
    """Return when devices have done what they were told. Raises what failed in one."""
    current().sync()


def get_loss_queue() -> queue.Queue[object]:
    """Return the queue that gets losses. Raises `PyBudaError` without a pipeline that trains."""
    with initialized_to_train() as pipeline:
        return pipeline.queues.losses


def _meant(device: Device | None) -> list[Device]:
    return current().working(training=True) if device is None else [device]
