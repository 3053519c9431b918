"""A stage: modules that are one program on the device, and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

import sambac
import sambarun
from pef.program import Port, Program
from sambahost.arrays import torch_type
from sambahost.errors import HostError
from sambahost.model_session import ModelSession
from sambahost.models import tried
from sambahost.wording import reworded

from .compiling import options_for
from .config import UNSET, CompileSettings
from .errors import PyBudaError
from .placeable import Part
from .recorded import RecordedModule

_ALL = sambarun.Selection()
API = "pybuda"
"""Whose names a session knows tensors by."""
AnySession = TypeVar("AnySession", bound=ModelSession)


@dataclass(frozen=True)
class StageProgram:
    """A compiled program, the ports of its inputs and outputs in order, and names of the inputs."""

    program: Program
    inputs: tuple[str, ...]
    names: tuple[str, ...]
    outputs: tuple[str, ...]

    def given(self, sample: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the tensors of a sample by port. Raises `PyBudaError` for another number."""
        if len(sample) != len(self.inputs):
            raise PyBudaError(
                f"{len(sample)} inputs came, {len(self.inputs)} were expected: "
                f"{', '.join(self.names)}"
            )
        return dict(zip(self.inputs, sample, strict=True))

    def zeros(self, names: Sequence[str]) -> tuple[torch.Tensor, ...]:
        """Return zeros like the inputs or outputs at these ports."""
        graph = self.program.graphs[0]
        ports = {port.name: port for port in (*graph.inputs, *graph.outputs)}
        return tuple(self._zeros(ports[name]) for name in names)

    def _zeros(self, port: Port) -> torch.Tensor:
        symbol = self.program.symbols[port.symbol]
        sizes = [size for size in symbol.shape or () if isinstance(size, int)]
        return torch.zeros(sizes, dtype=torch_type(symbol.dtype))


class DeviceStage(Generic[AnySession]):
    """A program on the device."""

    def __init__(self, made: StageProgram, session: AnySession) -> None:
        self._made = made
        self._session = session

    def close(self) -> None:
        """Give back the memory of the device."""
        self._session.close()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Tell of what does not fit the program, in the names that programs know."""
        try:
            yield
        except HostError as error:
            known = dict(zip(self._made.names, self._made.inputs, strict=True))
            raise PyBudaError(reworded(str(error), known)) from error


class Stage(DeviceStage[ModelSession]):
    """A program for samples of fixed shapes."""

    def __init__(self, made: StageProgram, threads: int | None) -> None:
        super().__init__(made, ModelSession(sambarun.load(made.program, threads=threads), API))

    def forward(self, sample: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs for one sample.

        Raises `PyBudaError` if it has not the number, shapes and types of those compiled for.
        """
        given: Mapping[str, torch.Tensor] = self._made.given(sample)
        with self._told():
            self._session.hold(given)
            results = self._session.run(_ALL, {})
        return [self._session.result(name, results) for name in self._made.outputs]


def compiled(
    part: Part,
    sample: Sequence[torch.Tensor],
    names: Sequence[str] = (),
    settings: CompileSettings = UNSET,
) -> StageProgram:
    """Compile `part` for tensors like those of `sample`, whose arguments are `names`.

    `settings` are what the configuration asks for. Raises `sambac.CompileError` for what cannot be
    compiled, and `PyBudaError` for names that an ONNX model does not have.
    """
    program = _compiled(part, tuple(sample), settings)
    graph = program.graphs[0]
    inputs = tuple(port.name for port in graph.inputs)
    if names and not isinstance(part, torch.nn.Module):
        if sorted(names) != sorted(inputs):
            came = ", ".join(names)
            raise PyBudaError(f"inputs called {came} came; the model has {', '.join(inputs)}")
        inputs = tuple(names)
    spoken = tuple(names) or tuple(f"input {index}" for index in range(len(inputs)))
    return StageProgram(program, inputs, spoken, tuple(port.name for port in graph.outputs))


def _compiled(part: Part, sample: tuple[torch.Tensor, ...], settings: CompileSettings) -> Program:
    if not isinstance(part, torch.nn.Module):
        return sambac.compile(part, options_for(part, settings))
    if any(isinstance(each, RecordedModule) for each in part.modules()):
        tried(part, sample, training=False)  # so that operators have their names
    return sambac.compile(part, options_for(part, settings), inputs=sample)
