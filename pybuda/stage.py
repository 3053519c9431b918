"""A stage: modules that are one program on the device, and its runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

import sambac
import sambarun
from pef.program import Program
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


class DeviceStage:
    """A program on the device."""

    def __init__(self, program: Program, threads: int | None) -> None:
        self._session = ModelSession(sambarun.load(program, threads=threads), "pybuda")

    def close(self) -> None:
        """Give back the memory of the device."""
        self._session.close()

    @contextmanager
    def _told(self, names: Sequence[str], ports: Sequence[str]) -> Iterator[None]:
        """Tell of what does not fit the program, whose `ports` programs call by `names`."""
        try:
            yield
        except HostError as error:
            known = dict(zip(names, ports, strict=True))
            raise PyBudaError(reworded(str(error), known)) from error


class Stage(DeviceStage):
    """A program for samples of fixed shapes."""

    def __init__(
        self,
        part: Part,
        sample: Sequence[torch.Tensor],
        names: Sequence[str] = (),
        settings: CompileSettings = UNSET,
    ) -> None:
        """Compile `part` for tensors like those of `sample`, whose arguments are `names`.

        `settings` are what the configuration asks for.

        Raises `sambac.CompileError` for what cannot be compiled, and `PyBudaError` for names that
        an ONNX model does not have.
        """
        program = _compiled(part, tuple(sample), settings)
        graph = program.graphs[0]
        own = [port.name for port in graph.inputs]
        if names and not isinstance(part, torch.nn.Module):
            if sorted(names) != sorted(own):
                came = ", ".join(names)
                raise PyBudaError(f"inputs called {came} came; the model has {', '.join(own)}")
            self._inputs = [*names]
        else:
            self._inputs = own
        self._names = names or [f"input {index}" for index in range(len(own))]
        self._outputs = [port.name for port in graph.outputs]
        super().__init__(program, settings.threads)

    def forward(self, sample: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the outputs for one sample.

        Raises `PyBudaError` if it has not the number, shapes and types of those compiled for.
        """
        if len(sample) != len(self._inputs):
            raise PyBudaError(
                f"{len(sample)} inputs came, {len(self._inputs)} were expected: "
                f"{', '.join(self._names)}"
            )
        with self._told(self._names, self._inputs):
            self._session.hold(dict(zip(self._inputs, sample, strict=True)))
            results = self._session.run(_ALL, {})
        return [self._session.result(name, results) for name in self._outputs]


def _compiled(part: Part, sample: tuple[torch.Tensor, ...], settings: CompileSettings) -> Program:
    if not isinstance(part, torch.nn.Module):
        return sambac.compile(part, options_for(part, settings))
    if any(isinstance(each, RecordedModule) for each in part.modules()):
        tried(part, sample, training=False)  # so that operators have their names
    return sambac.compile(part, options_for(part, settings), inputs=sample)
