"""What runs modules: `run_inference` by itself, or the parts of which it is made."""

from __future__ import annotations

import atexit
import queue
from collections.abc import Mapping, Sequence
from functools import partial

from sambahost.training_pipeline import TrainingQueues

from ._C.backend_api import DeviceMode
from .config import compiler, reset_configuration, warn_of_idle
from .device import Context, Device, current
from .errors import PyBudaError, counted, listed, require_queues
from .microbatch import Microbatch
from .placeable import Placeable, listed_modules
from .running import (
    end_training,
    inference_pipeline,
    initialized_to_run,
    training_pipeline,
    working,
)
from .tensor import SomeTensor, Tensor
from .tt_device import TTDevice
from .verifying import asked_for


def run_inference(
    module: Placeable | None = None,
    inputs: Sequence[object] = (),
    input_count: int = 1,
    output_queue: queue.Queue[object] | None = None,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: object = None,
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
    warn_of_idle(_perf_trace=_perf_trace or None)
    count = counted("input_count", input_count)
    require_queues(output_queue=output_queue)
    batches = [Microbatch.of((i,)) for i in listed("inputs", inputs, object, "microbatches")]
    if inputs and count not in (1, len(inputs)):
        raise PyBudaError(f"{len(inputs)} inputs came, and input_count is {count}")
    context = current()
    with context.lock:
        if module is not None:
            _place_alone(context, module)
        pipeline = inference_pipeline(context, output_queue, (), asked_for(_verify_cfg))
        waiting = working(context, training=False)[0].inputs
        first = waiting.peek() or next(iter(batches), None)
        if first is not None:
            pipeline.compile_for(first)
        for batch in batches:
            waiting.add(batch)
        pipeline.forward(len(batches) or count, _sequential)
        return pipeline.queues.results


def initialize_pipeline(
    training: bool,
    output_queue: queue.Queue[object] | None = None,
    checkpoint_queue: queue.Queue[object] | None = None,
    sample_inputs: Sequence[SomeTensor] | Mapping[str, SomeTensor] = (),
    sample_targets: Sequence[SomeTensor] = (),
    microbatch_count: int = 1,
    d2d_fwd_queues: Sequence[queue.Queue[object]] = (),
    d2d_bwd_queues: Sequence[queue.Queue[object]] = (),
    _sequential: bool = False,
    _verify_cfg: object = None,
    _device_mode: DeviceMode | None = None,
) -> queue.Queue[object]:
    """Compile the modules on all devices, and return the queue of outputs, or of checkpoints.

    What runs is ended, and what was compiled forgotten. Samples say which shapes to compile for,
    targets in training, where `output_queue` gets losses. `d2d_fwd_queues` get what each device
    gives to the next one, `d2d_bwd_queues` the gradients that it gets back. `microbatch_count` says
    nothing that devices here have to know. Raises `PyBudaError` where nothing says which shapes to
    compile for, and for what belongs to training without it.
    """
    warn_of_idle(_device_mode=_device_mode)
    counted("microbatch_count", microbatch_count)
    require_queues(output_queue=output_queue, checkpoint_queue=checkpoint_queue)
    context, verified = current(), asked_for(_verify_cfg)
    with context.lock:
        devices = working(context, training)
        _require_fewer(len(devices), d2d_fwd_queues=d2d_fwd_queues, d2d_bwd_queues=d2d_bwd_queues)
        given, targets = Microbatch.sampled(sample_inputs), Microbatch.sampled(sample_targets)
        if not training:
            _require_inference(
                checkpoint_queue=checkpoint_queue,
                sample_targets=targets,
                d2d_bwd_queues=d2d_bwd_queues,
            )
        context.close(devices)
        sample, wanted = given or devices[0].inputs.peek(), targets or devices[-1].targets.peek()
        if sample is None or (training and wanted is None):
            missing = "sample_inputs and sample_targets" if training else "sample_inputs"
            raise PyBudaError(f"nothing says what to compile for: give {missing}, or push some")
        if not training or wanted is None:
            infers = inference_pipeline(context, output_queue, d2d_fwd_queues, verified)
            infers.compile_for(sample)
            return infers.queues.results
        between = (d2d_fwd_queues, d2d_bwd_queues)
        queues = partial(TrainingQueues.of, output_queue, checkpoint_queue, *between)
        trains = training_pipeline(context, queues, verified)
        trains.compile_for(sample, wanted)
        return trains.queues.checkpoints


def run_forward(input_count: int = 1, _sequential: bool = False) -> None:
    """Run microbatches that are pushed, through a pipeline that was initialized.

    For 0 all that ever come. In training losses come out of it, and backward passes may follow.
    Raises `PyBudaError` if there is no such pipeline, and if devices have changed since.
    """
    count = counted("input_count", input_count)
    context = current()
    with context.lock:
        initialized_to_run(context).forward(count, _sequential)


def get_intermediates_queue() -> queue.Queue[object]:
    """Return the queue that gets what operators give which `op_intermediates_to_save` names.

    That is a list of tensors, in their order, for each microbatch and device that has some.
    """
    return current().intermediates


def set_device_pipeline(devices: Sequence[Device]) -> None:
    """Let devices run in this order: all that there are, each once. What runs is ended.

    Raises `PyBudaError` for what is no device, for one too many, and for one that is left out.
    """
    context = current()
    listed("devices", devices, Device, "devices")
    with context.lock:
        if sorted(map(id, devices)) != sorted(map(id, context.devices)):
            said = (", ".join(each.name for each in some) for some in (devices, context.devices))
            raise PyBudaError("the pipeline has {}, and there are {}; name each once".format(*said))
        context.stop()
        context.devices = [*devices]


def shutdown() -> None:
    """End what runs, and forget all devices."""
    context = current()
    with context.lock:
        context.close(context.devices)
        context.devices.clear()
        context.intermediates = queue.Queue()
        context.ready = None


def pybuda_reset() -> None:
    """Forget all devices and what was configured."""
    shutdown()
    reset_configuration()


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
        end_training(context)
        (device,) = working(context, training=False)
        device.refresh()
        found = device.infer(batch)
        compiler().tell_idle()
        return [*map(Tensor, found)]


def _place_alone(context: Context, module: Placeable) -> None:
    """Let `module` be the only one, on the first device, unless it is placed already."""
    devices = [*context.devices]
    if any(other is module for device in devices for other in device.modules):
        return
    (placed,) = listed_modules(module)
    for device in devices:
        device.remove_modules()
    target = devices[0] if devices else TTDevice("auto_tt0")
    target.place_module(placed)


def _require_inference(**given: object) -> None:
    """Raise `PyBudaError` for what was given, and only training has a use for."""
    for name, came in given.items():
        if came not in (None, (), []):
            raise PyBudaError(f"{name} came without training, which alone has a use for it")


def _require_fewer(devices: int, **queues: Sequence[object]) -> None:
    """Raise `PyBudaError` for more queues than there are places between devices."""
    for name, given in queues.items():
        found = enumerate(listed(name, given, object, "queues"))
        require_queues(**{f"{name}[{index}]": each for index, each in found})
        if len(given) >= devices:
            raise PyBudaError(
                f"{len(given)} {name} came for {devices} devices, which have one less between them"
            )


def _leave() -> None:
    """End what runs, be it in the middle: threads end Python badly that outlive it."""
    if (pipeline := current().pipeline) is not None:
        pipeline.crew.interrupt()
    shutdown()


atexit.register(_leave)
