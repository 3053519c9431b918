"""What runs modules: `run_inference` by itself, or the parts of which it is made."""

from __future__ import annotations

import atexit
import queue
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .context import Context, PipelineDevice, current
from .devices import Device, TTDevice
from .errors import PyBudaError
from .microbatch import Microbatch
from .pipeline import Pipeline
from .placeable import Placeable, listed_modules
from .tensor import SomeTensor, Tensor

_OWN_DEVICE = "auto_tt0"


@dataclass
class _Ready:
    """The pipeline that was made last, and the state of devices that it is of."""

    pipeline: Pipeline | None = None
    changes: int = -1


_ready = _Ready()


def run_inference(
    module: Placeable | None = None,
    inputs: Sequence[object] = (),
    input_count: int = 1,
    output_queue: queue.Queue[object] | None = None,
    _sequential: bool = False,
) -> queue.Queue[object]:
    """Run microbatches through the devices, and return the queue that gets their outputs.

    `module` alone is placed on a device of its own, in place of other modules. `inputs` are pushed
    first: a tuple of tensors or a dictionary by argument for each microbatch; without them, run
    `input_count` microbatches that are pushed by hand, before or after the call, or for 0 all that
    ever come. Each item of the queue is a list of tensors, one for each output. As long as devices
    and modules are the same, a call goes on with the queue of the first. What fails in a device
    is raised by the queue's `get`.

    Raises `PyBudaError` where there is no device, `sambac.CompileError` for what cannot be
    compiled; then nothing was pushed.
    """
    count = _counted(input_count)
    if not isinstance(inputs, tuple | list):
        raise PyBudaError(
            f"inputs is a {type(inputs).__name__}; a list of microbatches was expected"
        )
    if inputs and count not in (1, len(inputs)):
        raise PyBudaError(f"{len(inputs)} inputs came, and input_count is {count}")
    batches = [Microbatch.of((item,)) for item in inputs]
    context = current()
    with context.lock:
        if module is not None:
            _place_alone(context, module)
        pipeline = _pipeline(context, output_queue)
        waiting = _working(context)[0].inputs
        first = waiting.peek() or next(iter(batches), None)
        if first is not None:
            pipeline.compile_for(first)
        for batch in batches:
            waiting.add(batch)
        _run(pipeline, len(batches) or count, _sequential)
        return pipeline.results


def initialize_pipeline(
    training: bool,
    output_queue: queue.Queue[object] | None = None,
    *,
    sample_inputs: Sequence[SomeTensor] | Mapping[str, SomeTensor] = (),
    d2d_fwd_queues: Sequence[queue.Queue[object]] = (),
) -> queue.Queue[object]:
    """Compile the modules on all devices for `sample_inputs`, and return the queue of outputs.

    What runs is ended, and what was compiled forgotten. `d2d_fwd_queues` get what each device gives
    to the next one. Raises `PyBudaError` for training, and where nothing says which shapes to
    compile for.
    """
    if training:
        raise PyBudaError("training through PyBuda is not there yet; use inference")
    context = current()
    with context.lock:
        working = _working(context)
        if len(d2d_fwd_queues) >= max(len(working), 1):
            raise PyBudaError(
                f"{len(d2d_fwd_queues)} d2d_fwd_queues came for {len(working)} devices, which have "
                "one less between them"
            )
        sample = Microbatch.of((sample_inputs,)) if len(sample_inputs) else working[0].inputs.peek()
        if sample is None:
            raise PyBudaError(
                "nothing says what to compile for: give sample_inputs, or push inputs"
            )
        context.stop()
        for device in working:
            device.close()
        pipeline = _pipeline(context, output_queue, d2d_fwd_queues)
        pipeline.compile_for(sample)
        return pipeline.results


def run_forward(input_count: int = 1, _sequential: bool = False) -> None:
    """Run microbatches that are pushed, through a pipeline that was initialized.

    For 0 all that ever come. Raises `PyBudaError` if there is no such pipeline, and if devices have
    changed since.
    """
    count = _counted(input_count)
    context = current()
    with context.lock:
        if _ready.pipeline is None:
            raise PyBudaError("there is no pipeline; call initialize_pipeline first")
        if _ready.changes != context.changes:
            raise PyBudaError("devices or modules have changed; call initialize_pipeline again")
        _run(_ready.pipeline, count, _sequential)


def shutdown() -> None:
    """End what runs, and forget all devices."""
    context = current()
    with context.lock:
        context.stop()
        for device in context.devices:
            device.close()
        context.devices.clear()
        _ready.pipeline = None


def run_module(module: Placeable, inputs: Sequence[SomeTensor]) -> list[Tensor]:
    """Return the outputs of a module for one microbatch, on a device of its own.

    Raises `PyBudaError` if other modules are placed beside it.
    """
    batch, context = Microbatch.of((tuple(inputs),)), current()
    with context.lock:
        _place_alone(context, module)
        if [other for device in context.devices for other in device.modules] != [module]:
            raise PyBudaError(
                f"'{module.get_name()}' is placed with other modules; call run_inference"
            )
        (device,) = _working(context)
        device.refresh()
        return [Tensor(tensor) for tensor in device.run(batch)]


def _place_alone(context: Context, module: Placeable) -> None:
    """Let `module` be the only one, on the first device, unless it is placed already."""
    (placed,) = listed_modules(module)
    devices = [device for device in context.devices if isinstance(device, Device)]
    if any(other is placed for device in devices for other in device.modules):
        return
    for device in devices:
        device.remove_modules()
    target = devices[0] if devices else TTDevice(_OWN_DEVICE)
    target.place_module(placed)


def _pipeline(
    context: Context,
    results: queue.Queue[object] | None,
    between: Sequence[queue.Queue[object]] = (),
) -> Pipeline:
    """Return the pipeline that is ready, or a new one if it failed or devices have changed."""
    ready = _ready.pipeline
    if ready is None or _ready.changes != context.changes or ready.error is not None:
        working = _working(context)
        context.stop()
        queued = queue.Queue[object]() if results is None else results
        _ready.pipeline = context.running = ready = Pipeline(working, queued, between)
        _ready.changes = context.changes
    return ready


def _working(context: Context) -> list[PipelineDevice]:
    """Return the devices that have modules. Raises `PyBudaError` if there are none."""
    found = [device for device in context.devices if device.modules]
    if not found:
        raise PyBudaError(
            "there is no device with a module; make a TTDevice and place one, or give "
            "run_inference a module"
        )
    return found


def _run(pipeline: Pipeline, count: int, in_sequence: bool) -> None:
    if in_sequence:
        pipeline.forward_in_sequence(count)
    else:
        pipeline.forward(count)


def _counted(count: object) -> int:
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise PyBudaError(f"input_count is {count!r}; 0 or a number of microbatches was expected")
    return count


atexit.register(shutdown)  # threads that run while Python is taken apart end it badly
