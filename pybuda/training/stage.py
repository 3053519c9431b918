"""A stage that trains: modules that are one program with sections for a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np
import torch

import sambac
import sambarun
from pef.graphs import gradient_name
from pef.program import SectionType
from pybuda.compiling import options_for
from pybuda.config import UNSET, CompileSettings
from pybuda.errors import PyBudaError
from pybuda.recorded import Chain, Graded
from pybuda.stage import DeviceStage
from sambahost.models import in_mode, tried

_FORWARD = sambarun.Selection(("FWD",), train=True)
_BACKWARD = sambarun.Selection(("BCKWD",))
_ZERO = sambarun.Selection(("ZEROGRAD",))
_UPDATE = sambarun.Selection(("OPT",))
_RATE = "lr"


class ForwardRun:
    """A forward run whose backward run has not come yet: what went in, and what that one reads.

    `kept` is None as long as it is still on the device.
    """

    def __init__(self, inputs: Mapping[str, torch.Tensor]) -> None:
        self.inputs = inputs
        self.kept: Mapping[str, np.ndarray] | None = None


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


class TrainedStage(DeviceStage):
    """A program for samples of fixed shapes, whose gradients add up until they are zeroed."""

    def __init__(
        self, part: Chain | Graded, sample: Sequence[torch.Tensor], wish: StageWish
    ) -> None:
        """Compile `part` for tensors like those of `sample`.

        Raises `sambac.CompileError` for what cannot be compiled.
        """
        self.outputs = tried(part, sample, training=True)
        ports = [f"tensors_{index}" for index in range(len(sample))]
        wanted = _wanted(part, sample[: wish.inputs], wish.first)
        options = replace(
            options_for(part, wish.settings),
            train=True,
            accumulate=True,
            recompute=wish.settings.recompute,
            optimizers=() if wish.optimizer is None else (wish.optimizer,),
            backward_from=tuple(f"output_{index}" for index in range(len(self.outputs))),
            input_grads=tuple(ports[index] for index in wanted),
        )
        with in_mode(part, training=True):
            program = sambac.compile(part, options, inputs=tuple(sample))
        super().__init__(program, wish.settings.threads)
        self._ports = ports
        self._inputs = wish.inputs
        self._spoken = [
            f"input {index}" if index < wish.inputs else f"target {index - wish.inputs}"
            for index in range(len(ports))
        ]
        self._names = [port.name for port in program.graphs[0].outputs[: len(self.outputs)]]
        self._types = {section.type for section in program.sections}
        self._last: ForwardRun | None = None

    def forward(self, sample: Sequence[torch.Tensor]) -> tuple[list[torch.Tensor], ForwardRun]:
        """Return the outputs for one sample, and what its backward run needs.

        Raises `PyBudaError` if it has not the number, shapes and types of those compiled for.
        """
        if len(sample) != len(self._ports):
            raise PyBudaError(
                f"{len(sample)} inputs and targets came, {len(self._ports)} were expected"
            )
        self._keep_last()
        given = zip(self._ports, sample, strict=True)
        run = ForwardRun({port: tensor for port, tensor in given if port in self._session.inputs})
        with self._told(self._spoken, self._ports):
            self._session.hold(run.inputs)
            results = self._session.run(_FORWARD, {})
            self._last = run
            return [self._session.result(name, results) for name in self._names], run

    def backward(
        self, run: ForwardRun, gradients: Sequence[torch.Tensor | None] | None
    ) -> list[torch.Tensor | None]:
        """Add up the gradients of parameters, and return those of the inputs.

        `gradients` are those of the outputs; without them it starts from ones.
        """
        if run is not self._last:
            self._keep_last()
        session = self._session
        with self._told(self._spoken, self._ports):
            session.hold(run.inputs)
            session.start_from({} if gradients is None else self._starts(gradients))
            with nullcontext() if run.kept is None else session.restored(run.kept):
                results = session.run(_BACKWARD, {})
            self._last = None
            found = [gradient_name(port) for port in self._ports[: self._inputs]]
            return [session.result(name, results) if name in results else None for name in found]

    def begin(self) -> None:
        """Forget that the last forward run has no backward run yet."""
        self._last = None

    def zero_gradients(self) -> None:
        """Let gradients add up from zero."""
        self._run_if_there(_ZERO, SectionType.ZEROGRAD, {})

    def optimize(self, rate: float) -> None:
        """Update the parameters by the optimizer, with this learning rate."""
        self._run_if_there(_UPDATE, SectionType.OPT, {_RATE: rate})

    def find(self, name: str) -> torch.Tensor | None:
        """Return a copy of what `name` holds: a parameter, `<parameter>__grad`, a buffer."""
        return self._session.find(name)

    def write(self, name: str, value: torch.Tensor) -> None:
        """Overwrite what `name` holds. Raises `PyBudaError` for what does not fit."""
        with self._told(self._spoken, self._ports):
            self._session.write(name, value)

    def _keep_last(self) -> None:
        """Take off the device what the backward run of the last forward run will need there."""
        if self._last is not None:
            self._last.kept = self._session.kept()
            self._last = None

    def _starts(self, gradients: Sequence[torch.Tensor | None]) -> dict[str, torch.Tensor]:
        starts = self._session.seeds
        given = zip(self._names, gradients, self.outputs, strict=True)
        return {
            gradient_name(name): torch.zeros_like(output) if gradient is None else gradient
            for name, gradient, output in given
            if name in starts
        }

    def _run_if_there(
        self, selected: sambarun.Selection, kind: SectionType, numbers: Mapping[str, float]
    ) -> None:
        if kind in self._types:
            with self._told(self._spoken, self._ports):
                self._session.run(selected, numbers)


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
