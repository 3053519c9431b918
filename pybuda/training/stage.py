"""A stage that trains: modules that are one program with sections for a training step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

import sambac
import sambarun
from pybuda.compiling import options_for
from pybuda.config import UNSET, CompileSettings
from pybuda.errors import PyBudaError
from pybuda.recorded import Chain, Graded
from pybuda.stage import API, DeviceStage, StageProgram
from sambahost.device_session import GRADIENT
from sambahost.models import in_mode, tried
from sambahost.step_session import ForwardRun, StepSession

_RATE = "lr"


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


class TrainedStage(DeviceStage[StepSession]):
    """A program for samples of fixed shapes, whose gradients add up until they are zeroed.

    The first `inputs` of what it takes are inputs, the others targets.
    """

    def __init__(self, made: StageProgram, inputs: int, threads: int | None) -> None:
        super().__init__(made, StepSession(sambarun.load(made.program, threads=threads), API))
        self.outputs = made.zeros(made.outputs)
        self._inputs = inputs

    def forward(self, sample: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], ForwardRun]:
        """Return the outputs for one sample, and what its backward run needs.

        Raises `PyBudaError` if it has not the number, shapes and types of those compiled for.
        """
        read = self._session.inputs
        given = {port: item for port, item in self._made.given(sample).items() if port in read}
        with self._told():
            results, run = self._session.forward(given)
            return [self._session.result(name, results) for name in self._made.outputs], run

    def backward(
        self, run: ForwardRun, gradients: Sequence[torch.Tensor | None] | None
    ) -> list[torch.Tensor | None]:
        """Add up the gradients of parameters, and return those of the inputs.

        `gradients` are those of the outputs; without them it starts from ones.
        """
        session = self._session
        with self._told():
            results = session.backward(run, {} if gradients is None else self._starts(gradients))
            found = [f"{port}{GRADIENT}" for port in self._made.inputs[: self._inputs]]
            return [session.result(name, results) if name in results else None for name in found]

    def begin(self) -> None:
        """Forget that the last forward run has no backward run yet."""
        self._session.begin()

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        with self._told():
            self._session.zero_gradients()

    def optimize(self, rate: float) -> None:
        """Update the parameters by the optimizer, with this learning rate."""
        with self._told():
            self._session.optimize({_RATE: rate})

    def find(self, name: str) -> torch.Tensor | None:
        """Return a copy of what `name` holds: a parameter, `<parameter>__grad`, a buffer."""
        return self._session.find(name)

    def write(self, name: str, value: torch.Tensor) -> None:
        """Overwrite what `name` holds. Raises `PyBudaError` for what does not fit."""
        with self._told():
            self._session.write(name, value)

    def _starts(self, gradients: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
        starts = self._session.seeds
        given = zip(self._made.outputs, gradients, self.outputs, strict=True)
        return {
            f"{name}{GRADIENT}": zeros if gradient is None else gradient
            for name, gradient, zeros in given
            if name in starts
        }


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
