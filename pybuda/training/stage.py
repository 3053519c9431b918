"""A stage that trains: modules that are one program with sections for a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import sambac
from pybuda.compiling import options_for
from pybuda.config import UNSET, CompileSettings
from pybuda.errors import PyBudaError
from pybuda.recorded import Chain, Graded
from sambahost.models import in_mode, tried
from sambahost.stages import StageProgram


@dataclass(frozen=True)
class StageWish:
    """How a stage trains.

    `inputs` of the module's arguments are inputs, the others targets of its loss; `first` says that
    nobody wants the gradients of inputs. `optimizer` updates the parameters, if there is one.
    `settings` are what the configuration asks for.
    """

    inputs: int
    first: bool
    optimizer: sambac.Optimizer | None
    settings: CompileSettings = UNSET


def compiled_step(
    part: Chain | Graded, sample: Sequence[torch.Tensor], wish: StageWish
) -> StageProgram:
    """Compile `part` to train on tensors like those of `sample`.

    Raises `sambac.CompileError` for what cannot be compiled.
    """
    outputs = tried(part, sample, training=True)
    ports = tuple(f"tensors_{index}" for index in range(len(sample)))
    wanted = _wanted(part, sample[: wish.inputs], wish.first)
    options = replace(
        options_for(part, wish.settings),
        train=True,
        accumulate=True,
        recompute=wish.settings.recompute,
        optimizers=() if wish.optimizer is None else (wish.optimizer,),
        backward_from=tuple(f"output_{index}" for index in range(len(outputs))),
        input_grads=tuple(ports[index] for index in wanted),
    )
    with in_mode(part, training=True):
        program = sambac.compile(part, options, inputs=tuple(sample))
    spoken = tuple(
        f"input {index}" if index < wish.inputs else f"target {index - wish.inputs}"
        for index in range(len(ports))
    )
    names = tuple(port.name for port in program.graphs[0].outputs[: len(outputs)])
    return StageProgram(program, ports, spoken, names)


def _wanted(part: torch.nn.Module, inputs: Sequence[torch.Tensor], first: bool) -> list[int]:
    """Return which inputs are to have gradients: where nothing trains, those of a first stage too.

    The compiler makes a training step of something, and dropout is to drop there as well. Raises
    `PyBudaError` where there is nothing at all that could have a gradient.
    """
    trains = any(parameter.requires_grad for parameter in part.parameters())
    floats = [index for index, tensor in enumerate(inputs) if tensor.is_floating_point()]
    if not trains and not floats:
        raise PyBudaError(
            "a device has neither parameters that train nor inputs that can have a gradient; place "
            "its modules on the next device, or on a CPUDevice"
        )
    return [] if first and trains else floats
