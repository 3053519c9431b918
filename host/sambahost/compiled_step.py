"""Compiling what a device trains, for samples: torch modules, or an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

import sambac
from pef.program import Program

from .errors import HostError
from .models import in_mode, tried
from .onnx_part import OnnxPart
from .samples import Samples
from .stages import StageProgram, StepPlace
from .trained_values import TrainedValues

AnyPart: TypeAlias = "nn.Module | OnnxPart"
"""What becomes one program."""
Updates: TypeAlias = "Callable[[Mapping[str, str]], sambac.Optimizer | None]"
"""Returns what updates parameters, which have these paths in a program by their names."""


Asks: TypeAlias = "Callable[[AnyPart], sambac.CompileOptions]"
"""Returns the options that an API has for a part."""


class _Asked(NamedTuple):
    """What a part is compiled with: its inputs may have names, and it may be the `first`."""

    asks: Asks
    optimizers: tuple[sambac.Optimizer, ...]
    names: tuple[str, ...]
    first: bool


class StepRequest(NamedTuple):
    """What an API asks of a training step.

    `asks` gives the options of a part, which torch has run by then if it is one of torch. `own` are
    the parameters by name. Nobody wants gradients of the inputs of the `first` device.
    """

    asks: Asks
    own: Mapping[str, nn.Parameter]
    updates: Updates
    first: bool


@dataclass(frozen=True)
class CompiledStep:
    """A compiled training step: its programs, which follow each other, and what is called how.

    The first `inputs` of what each takes are inputs, those of the first one by `names` if they came
    so. `places` are those of parameters by name; `tensors` have the values that the programs began
    with, by place, but for those of `later`, which are written when they are loaded.
    """

    made: Sequence[StageProgram]
    inputs: Sequence[int]
    names: tuple[str, ...]
    places: Mapping[str, StepPlace]
    tensors: Sequence[tuple[StepPlace, Tensor]]
    later: Mapping[StepPlace, Tensor] = field(default_factory=dict)


def compile_step(
    asked: StepRequest,
    parts: Sequence[AnyPart],
    samples: tuple[Samples, Samples | None],
    held: TrainedValues,
) -> CompiledStep:
    """Compile parts that follow each other to train on inputs, and targets, like `samples`.

    They begin with the values that are `held`. Raises `sambac.CompileError` for what cannot be
    compiled, and `HostError` for what does not train.
    """
    own = asked.own
    batch, targets = samples
    whole = next(batch.with_targets(targets).samples())
    given, wanted = whole[: len(batch.tensors)], whole[len(batch.tensors) :]
    tensors = _placed(parts)
    found = {id(tensor): place for place, tensor in tensors}
    places = {name: found[id(tensor)] for name, tensor in own.items() if id(tensor) in found}
    made: list[StageProgram] = []
    inputs: list[int] = []
    for stage, part in enumerate(parts):
        paths = {
            n: at.path for n, at in places.items() if at.stage == stage and own[n].requires_grad
        }
        optimizer = asked.updates(paths)
        updated = () if optimizer is None else (optimizer,)
        sample = (*given, *wanted) if stage == len(parts) - 1 else given
        names, is_first = ((), False) if made else (batch.names, asked.first)
        inputs.append(len(given))
        each = _Asked(asked.asks, updated, names, is_first)
        made.append(_program(part, each, sample, len(given), held))
        given = made[-1].zeros(made[-1].outputs)
    return CompiledStep(made, inputs, batch.names, places, tensors)


def _placed(parts: Sequence[AnyPart]) -> list[tuple[StepPlace, Tensor]]:
    """Return where each tensor is. Raises `HostError` for one that two parts would train apart."""
    found: dict[int, tuple[StepPlace, Tensor]] = {}
    for stage, part in enumerate(parts):
        for path, tensor in (*part.named_parameters(), *part.named_buffers()):
            place, _ = found.setdefault(id(tensor), (StepPlace(stage, path), tensor))
            if place.stage != stage:
                raise HostError(
                    f"'{path}' is before and behind an ONNX model on one device, where each would "
                    "train it by itself; place the modules that share it next to each other"
                )
    return [*found.values()]


def _program(
    part: AnyPart, asked: _Asked, sample: Sequence[Tensor], inputs: int, held: TrainedValues
) -> StageProgram:
    """Compile `part` to train on tensors like `sample`: so many `inputs`, and targets of a loss."""
    wanted = _wanted(part, sample[:inputs], asked.first)
    if isinstance(part, OnnxPart):
        ports, outputs = part.ports(asked.names, len(sample)), part.outputs
    else:
        ports = tuple(f"tensors_{index}" for index in range(len(sample)))
        with held.within(part):
            count = len(tried(part, sample, training=True))
        outputs = tuple(f"output_{index}" for index in range(count))
    options = replace(
        asked.asks(part),
        train=True,
        accumulate=True,
        optimizers=asked.optimizers,
        backward_from=outputs,
        input_grads=tuple(ports[index] for index in wanted),
    )
    program = _compiled(part, options, ports, sample, held)
    spoken = tuple(
        f"input {index}" if index < inputs else f"target {index - inputs}"
        for index in range(len(ports))
    )
    found = tuple(port.name for port in program.graphs[0].outputs[: len(outputs)])
    return StageProgram(program, ports, spoken, found)


def _compiled(
    part: AnyPart,
    options: sambac.CompileOptions,
    ports: Sequence[str],
    sample: Sequence[Tensor],
    held: TrainedValues,
) -> Program:
    if isinstance(part, OnnxPart):
        shapes = {
            port: sambac.InputSpec(tuple(tensor.shape))
            for port, tensor in zip(ports, sample, strict=True)
        }
        return sambac.compile(part.valued(held.values()), replace(options, inputs=shapes))
    with held.within(part), in_mode(part, training=True):
        return sambac.compile(part, options, inputs=tuple(sample))


def _wanted(part: AnyPart, inputs: Sequence[Tensor], first: bool) -> list[int]:
    """Return which inputs are to have gradients: where nothing trains, those of a first stage too.

    The compiler makes a training step of something, and dropout is to drop there as well. Raises
    `HostError` where there is nothing at all that could have a gradient.
    """
    trains = any(parameter.requires_grad for _, parameter in part.named_parameters())
    floats = [index for index, tensor in enumerate(inputs) if tensor.is_floating_point()]
    if not trains and not floats:
        raise HostError(
            "a device has neither parameters that train nor inputs that can have a gradient; place "
            "its modules on the next device, or on another kind of device"
        )
    return [] if first and trains else floats
