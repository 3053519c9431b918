"""Compiling what a device trains, for samples: torch modules, or an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from torch import Tensor, nn

import sambac
import sambarun
from pef.program import Program

from .cuts import cut
from .errors import HostError
from .models import in_mode, tried
from .onnx_part import OnnxPart
from .samples import Samples
from .stages import StageProgram, StepPlace
from .step_session import StepSession
from .trained_values import TrainedValues

AnyPart: TypeAlias = "nn.Module | OnnxPart"
"""What becomes one program."""
Updates: TypeAlias = "Callable[[Mapping[str, str]], sambac.Optimizer | None]"
"""Returns what updates parameters, which have these paths in a program by their names."""


Asks: TypeAlias = "Callable[[AnyPart], sambac.CompileOptions]"
"""Returns the options that an API has for a part."""


class _Asked(NamedTuple):
    """What a piece is compiled with: its inputs may have names, and it may be the `first`."""

    options: sambac.CompileOptions
    optimizers: tuple[sambac.Optimizer, ...]
    outputs: tuple[str, ...]
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
    with, by place, but for those of `later`, which are written when they are loaded. A part has up
    to so many `chips`.
    """

    made: Sequence[StageProgram]
    inputs: Sequence[int]
    names: tuple[str, ...]
    places: Mapping[str, StepPlace]
    tensors: Sequence[tuple[StepPlace, Tensor]]
    later: Mapping[StepPlace, Tensor] = field(default_factory=dict)
    chips: int = 1


def compile_step(
    asked: StepRequest,
    parts: Sequence[AnyPart],
    samples: tuple[Samples, Samples | None],
    held: TrainedValues,
) -> CompiledStep:
    """Compile parts that follow each other to train on inputs, and targets, like `samples`.

    They begin with the values that are `held`. Where options have chip breaks, parts are cut, and
    each piece is a program. Raises `sambac.CompileError` for what cannot be compiled, and
    `HostError` for what does not train, or not in pieces.
    """
    _placed(parts)
    batch, targets = samples
    whole = next(batch.with_targets(targets).samples())
    given, wanted = whole[: len(batch.tensors)], whole[len(batch.tensors) :]
    pieces: list[AnyPart] = []
    made: list[StageProgram] = []
    inputs: list[int] = []
    chips = 1
    for part in parts:
        sample = (*given, *wanted) if part is parts[-1] else given
        outputs, options = _outputs(part, sample, held), asked.asks(part)
        own = cut(part, sample, len(given), options.chip_breaks)
        for piece in own:
            is_last = part is parts[-1] and piece is own[-1]
            sample = (*given, *wanted) if is_last else given
            outputs = outputs if piece is part else _outputs(piece, sample, held)
            names, is_first = ((), False) if made else (batch.names, asked.first)
            updates = _updates(asked, piece, lenient=piece is not part)
            each = _Asked(options, updates, outputs, names, is_first)
            inputs.append(len(given))
            made.append(_program(piece, each, sample, len(given), held))
            given = made[-1].zeros(made[-1].outputs)
        pieces += own
        chips = max(chips, len(own))
    tensors = _placed(pieces)
    found = {id(tensor): place for place, tensor in tensors}
    places = {name: found[id(item)] for name, item in asked.own.items() if id(item) in found}
    return CompiledStep(made, inputs, batch.names, places, tensors, chips=chips)


def _outputs(part: AnyPart, sample: Sequence[Tensor], held: TrainedValues) -> tuple[str, ...]:
    """Return the names of what a part gives, which torch runs if it is one of torch."""
    if isinstance(part, OnnxPart):
        return part.outputs
    with held.within(part):
        count = len(tried(part, sample, training=True))
    return tuple(f"output_{index}" for index in range(count))


def _updates(asked: StepRequest, piece: AnyPart, *, lenient: bool) -> tuple[sambac.Optimizer, ...]:
    """Return what updates the parameters of a piece, `lenient` where none need have a gradient."""
    paths = {id(tensor): path for path, tensor in piece.named_parameters()}
    trains = {name: item for name, item in asked.own.items() if item.requires_grad}
    found = asked.updates({n: paths[id(item)] for n, item in trains.items() if id(item) in paths})
    return () if found is None else (replace(found, lenient=lenient),)


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
        ports = part.ports(asked.names, len(sample))
    else:
        ports = tuple(f"tensors_{index}" for index in range(len(sample)))
    options = replace(
        asked.options,
        train=True,
        accumulate=True,
        optimizers=asked.optimizers,
        chip_breaks=(),  # a piece is on one
        backward_from=asked.outputs,
        input_grads=tuple(ports[index] for index in wanted),
    )
    program = _compiled(part, options, ports, sample, held)
    spoken = tuple(
        f"input {index}" if index < inputs else f"target {index - inputs}"
        for index in range(len(ports))
    )
    found = tuple(port.name for port in program.graphs[0].outputs[: len(asked.outputs)])
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


def first_values(
    made: Sequence[StageProgram],
    places: Mapping[str, StepPlace],
    buffers: Sequence[StepPlace],
    trains: Sequence[str],
) -> dict[StepPlace, Tensor]:
    """Return what the programs of a step begin with: parameters, of which `trains` do, and buffers.

    Parameters have `places` by name. What a program has no state for is left out.
    """
    found: dict[StepPlace, Tensor] = {}
    for stage, program in enumerate(made):
        session = StepSession(sambarun.load(program.program, threads=1), "")
        try:
            for place in (*places.values(), *buffers):
                value = session.find(place.path) if place.stage == stage else None
                if value is not None:
                    found[place] = value
        finally:
            session.close()
    train = {places[name] for name in trains}
    own = {place: nn.Parameter(found[place], place in train) for place in {*found} - {*buffers}}
    return {**found, **own}
