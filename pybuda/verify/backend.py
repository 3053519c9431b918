"""Modules on devices of their own, run on drawn inputs, and compared with torch on the way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

import torch

from pef.arguments import passing_on, told
from pef.wording import did_you_mean
from pybuda import optimizers
from pybuda.config import compiler, set_chip_break, set_epoch_break
from pybuda.cpu_device import CPUDevice
from pybuda.device import Device
from pybuda.errors import PyBudaError, listed, require_kind
from pybuda.microbatch import Microbatch
from pybuda.module import Module, PyBudaModule, PyTorchModule
from pybuda.run import run_inference
from pybuda.running import apart
from pybuda.tensor import SomeTensor, Tensor
from pybuda.train import get_loss_queue, run_training
from pybuda.training.on_host import MakesOptimizer
from pybuda.tt_device import TTDevice
from pybuda.verifying import VerifyConfig
from sambahost.golden import Drawn
from sambahost.golden_training import Distance

Pushed: TypeAlias = "SomeTensor | Sequence[SomeTensor] | Mapping[str, SomeTensor]"


@told
def verify_module_pipeline(
    modules: Sequence[Module],
    input_shapes: Sequence[Sequence[int]] = (),
    verify_cfg: VerifyConfig | None = None,
    input_params: Sequence[Mapping[str, Any]] = (),
    device_types: Sequence[str] = ("TTDevice",),
    *,
    params_centered_on_zero: bool = False,
    scale_params: float = 1.0,
    inputs: Sequence[Pushed] = (),
    loss_module: Module | None = None,
    uniform_inputs: bool = False,
    inputs_centered_on_zero: bool = False,
) -> list[Device]:
    """Run modules on new devices, and raise `AssertionError` where one gives another than torch.

    Each of `device_types` ("TTDevice", "CPUDevice", or "-" for the device before) is for the next
    module; those left over go to the last device. Inputs are `inputs`, tensors of one microbatch or
    a tuple for each, or they are drawn: shapes are those of a microbatch, `input_params` have a
    `data_format` (of torch) for each. They are |N(0.5, 0.1)| + 1e-5, uniform from 0 to 1 by
    `uniform_inputs`, or N(0, 0.1) if they are centered on zero; integers are below 25000. So are
    parameters without values, divided by `scale_params`. By `verify_cfg` one microbatch goes
    forward, or modules train: with a `loss_module`, or else towards drawn targets. Devices of the
    program are left alone, but what they run is ended. Return the devices, which are no part of
    what runs next.
    """
    require_kind(verify_cfg=(verify_cfg, VerifyConfig))
    listed("modules", modules, Module, "modules")
    listed("input_shapes", input_shapes, (list, tuple), "shapes, one for each input,")
    config = VerifyConfig() if verify_cfg is None else verify_cfg
    owned = [module.get_parameters() for module in modules if isinstance(module, PyBudaModule)]
    for parameter in (each for own in owned for each in own if not each.has_value()):
        values = Drawn(False, params_centered_on_zero).numbers(parameter.shape)
        parameter.set_value(values / scale_params)
    count = config.epochs * config.steps * config.accumulation_steps * config.microbatch_count
    training = config.test_kind.is_training()
    drawn = Drawn(uniform_inputs, inputs_centered_on_zero)
    batches = _batches(inputs) or [
        _drawn(drawn, input_shapes, input_params)
        for _ in range(count if training else config.microbatch_count)
    ]
    with apart(), _configured(config):
        devices = _devices(modules, device_types, config)
        if training:
            _train(devices, batches, loss_module, config)
        else:
            found = run_inference(inputs=batches, _sequential=config.sequential, _verify_cfg=config)
            for _ in batches:
                found.get()
    return devices


@told
@passing_on(verify_module_pipeline)
def verify_module(
    module: Module,
    input_shapes: Sequence[Sequence[int]] = (),
    verify_cfg: VerifyConfig | None = None,
    input_params: Sequence[Mapping[str, Any]] = (),
    device_type: str = "TTDevice",
    **data: Any,
) -> None:
    """Do what `verify_module_pipeline` does for one module on a device."""
    verify_module_pipeline([module], input_shapes, verify_cfg, input_params, [device_type], **data)


def _train(
    devices: list[Device], batches: Sequence[Pushed], loss: Module | None, config: VerifyConfig
) -> None:
    """Train on the microbatches, with targets that are drawn like the outputs."""
    outputs = _outputs(devices, batches[0])
    if loss is None:
        if not isinstance(devices[-1], CPUDevice):
            devices.append(CPUDevice("cpu_loss"))
        loss = PyTorchModule("verified_loss", Distance(config.scale_loss))
    devices[-1].place_loss_module(loss)
    for batch in batches:
        devices[0].push_to_inputs(batch)
        devices[-1].push_to_target_inputs(tuple(torch.randn(o.shape) * 0.5 for o in outputs))
    run_training(
        config.epochs,
        config.steps,
        config.accumulation_steps,
        config.microbatch_count,
        checkpoint_interval=config.checkpoint_interval,
        _sequential=config.sequential,
        _verify_cfg=config,
    )
    losses = get_loss_queue()
    for _ in batches:
        losses.get()
    devices[-1].sync()


def _outputs(devices: Sequence[Device], first: Pushed) -> tuple[torch.Tensor, ...]:
    """Return what torch gives for a microbatch, run through all devices."""
    batch = Microbatch.of((first,))
    for device in devices:
        batch = Microbatch(device.golden(batch))
    return batch.tensors


def _devices(modules: Sequence[Module], kinds: Sequence[str], config: VerifyConfig) -> list[Device]:
    """Return new devices with the modules. Raises `PyBudaError` for kinds that there are not."""
    made: list[Device] = []
    for index, module in enumerate(modules):
        kind = kinds[index] if index < len(kinds) else "-"
        if kind not in ("TTDevice", "CPUDevice", "-") or (kind == "-" and not made):
            raise PyBudaError(
                f"device_types has {kind!r}; it is TTDevice, CPUDevice, or - for the device before"
            )
        if kind == "TTDevice":
            made.append(_tt_device(f"tt{index}", config))
        elif kind == "CPUDevice":
            made.append(CPUDevice(f"cpu{index}", _on_host(config)))
        made[-1].place_module(module)
    if not made:
        raise PyBudaError("no modules came; there is nothing to verify")
    return made


def _tt_device(name: str, config: VerifyConfig) -> TTDevice:
    optimizer = None
    if config.optimizer is not None and config.test_kind.is_training():
        optimizer = optimizers.of_kind(**config.optimizer)
    return TTDevice(
        name,
        chip_ids=config.chip_ids,
        num_chips=config.num_chips,
        arch=config.arch,
        devtype=config.devtype,
        optimizer=optimizer,
        scheduler=config.scheduler(optimizer) if config.scheduler and optimizer else None,
        fp32_fallback=config.fp32_fallback,
    )


def _on_host(config: VerifyConfig) -> MakesOptimizer | None:
    """Return what makes an optimizer of torch with the learning rate of the device's."""
    params = (config.optimizer or {}).get("params", {})
    if "learning_rate" not in params or not config.test_kind.is_training():
        return None
    return lambda module: torch.optim.SGD(module.parameters(), params["learning_rate"])


@contextmanager
def _configured(config: VerifyConfig) -> Iterator[None]:
    """Let the configuration have the breaks of `config`, and recompute if it says so, meanwhile."""
    own, before = compiler(), {**vars(compiler())}
    if config.epoch_breaks:
        set_epoch_break([*config.epoch_breaks])
    if config.chip_breaks:
        set_chip_break([*config.chip_breaks])
    own.enable_recompute = own.enable_recompute or config.test_kind.is_recompute()
    try:
        yield
    finally:
        vars(own).update(before)


def _batches(inputs: Sequence[Pushed]) -> list[Pushed]:
    """Return microbatches: each a tuple, or tensors that are one together."""
    tensors = [each for each in inputs if isinstance(each, torch.Tensor | Tensor)]
    return [tuple(tensors)] if inputs and len(tensors) == len(inputs) else [*inputs]


def _drawn(
    drawn: Drawn, shapes: Sequence[Sequence[int]], params: Sequence[Mapping[str, Any]]
) -> tuple[Tensor, ...]:
    """Return an input of each shape, as `params` say. Raises `PyBudaError` for what is unknown."""
    known, found = ("data_format", "requires_grad", "dev_data_format"), []
    for index, shape in enumerate(shapes):
        said = params[index] if index < len(params) else {}
        for key in said.keys() - {*known}:
            raise PyBudaError(f"input_params has '{key}'{did_you_mean(key, known)}")
        values = drawn.of(shape, said.get("data_format", torch.float32))
        found.append(Tensor.create_from_torch(values, said.get("dev_data_format")))
    return tuple(found)
