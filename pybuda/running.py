"""The pipeline that programs run, which none of them names: there is one."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from sambahost.driven import AnyPipeline
from sambahost.inference_pipeline import InferencePipeline, InferenceQueues
from sambahost.training_pipeline import TrainingPipeline, TrainingQueues

from .config import compiler
from .device import Context, Device, Ready, current
from .errors import PyBudaError
from .training_pipeline import API, pipeline_of
from .verifying import VerifyConfig

_Made = TypeVar("_Made", InferencePipeline, TrainingPipeline)


def inference_pipeline(
    context: Context,
    results: queue.Queue[object] | None,
    between: Sequence[queue.Queue[object]] = (),
    verified: VerifyConfig | None = None,
) -> InferencePipeline:
    """Return the pipeline that is ready, or a new one if it failed or devices have changed.

    It is verified by `verified`, or goes on as it began for None.
    """
    ready = _still_ready(context, verified)
    if isinstance(ready, InferencePipeline):
        return ready
    devices = _free(context, training=False, verified=verified)
    results = queue.Queue() if results is None else results
    queues = InferenceQueues(results, between, context.intermediates)
    rule = None if verified is None else verified.rule()
    made = InferencePipeline(devices, devices[0].inputs, queues, API, rule)
    return _begun(context, made, verified)


def training_pipeline(
    context: Context, queues: Callable[[], TrainingQueues], verified: VerifyConfig | None = None
) -> TrainingPipeline:
    """Return the pipeline that is ready, or a new one if it failed or devices have changed.

    It is verified by `verified`, or goes on as it began for None.
    """
    ready = _still_ready(context, verified)
    if isinstance(ready, TrainingPipeline) and _is_current(context):
        return ready
    devices = _free(context, training=True, verified=verified)
    return _begun(context, pipeline_of(devices, queues(), verified), verified)


def initialized(context: Context) -> AnyPipeline:
    """Return the pipeline that was made. Raises `PyBudaError` if there is none for devices now."""
    found = made_for(context)
    if context.ready is None:
        raise PyBudaError("there is no pipeline; call initialize_pipeline first")
    if found is None:
        raise PyBudaError(
            "devices, modules or the configuration have changed; call initialize_pipeline again"
        )
    return found


def initialized_to_run(context: Context) -> AnyPipeline:
    """Return the pipeline that was made. Raises `PyBudaError` for none of modules as they are."""
    found = initialized(context)
    if isinstance(found, TrainingPipeline) and not _is_current(context):
        raise PyBudaError(
            "modules have changed since they were compiled to train; call initialize_pipeline again"
        )
    return found


def _is_current(context: Context) -> bool:
    return all(device.is_current() for device in context.devices)


def made_for(context: Context) -> AnyPipeline | None:
    """Return the pipeline that was made for devices and settings as they are, None for none."""
    ready = context.ready
    if ready is None or ready.changes != context.changes:
        return None
    return ready.pipeline if ready.settings == compiler().settings() else None


@contextmanager
def initialized_to_train() -> Iterator[TrainingPipeline]:
    """Give the pipeline that trains, to nobody else meanwhile. Raises `PyBudaError` for none."""
    context = current()
    with context.lock:
        found = initialized(context)
        if not isinstance(found, TrainingPipeline):
            raise PyBudaError(
                "the pipeline is one of inference; call initialize_pipeline(training=True) first"
            )
        yield found


@contextmanager
def apart() -> Iterator[None]:
    """Let there be no devices for a while, and then those of before; what runs on them is ended."""
    context = current()
    with context.lock:
        context.stop()
        before, context.devices = context.devices, []
        try:
            yield
        finally:
            context.close(context.devices)
            context.devices, context.ready = before, None


def end_training(context: Context) -> None:
    """End what runs if it trains: devices are about to do something else."""
    if isinstance(context.pipeline, TrainingPipeline):
        context.stop()


def error_raised() -> bool:
    """Return whether a device has failed since the pipeline was made; `get` raises what it was."""
    ready = current().ready
    return ready is not None and ready.pipeline.crew.error is not None


def working(context: Context, training: bool) -> list[Device]:
    """Return the devices that have something to run. Raises `PyBudaError` if there are none."""
    if not (found := context.working(training)):
        raise PyBudaError(
            "there is no device with a module; make a TTDevice and place one, or give "
            "run_inference a module"
        )
    return found


def _still_ready(context: Context, verified: VerifyConfig | None) -> AnyPipeline | None:
    found, ready = made_for(context), context.ready
    if found is None or ready is None or found.crew.error is not None:
        return None
    return found if verified in (None, ready.verified) else None


def _free(context: Context, training: bool, verified: VerifyConfig | None) -> list[Device]:
    """Return the devices that have something to run, after an end to what they ran."""
    found = working(context, training)
    if context.pipeline is not None:
        context.pipeline.crew.settle()  # else what was pushed since would be dropped with its rest
    context.stop()
    for device in found:
        device.verified = verified
    return found


def _begun(context: Context, made: _Made, verified: VerifyConfig | None) -> _Made:
    context.pipeline = made
    context.ready = Ready(made, verified, context.changes, compiler().settings())
    return made
