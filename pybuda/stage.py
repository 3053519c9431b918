"""A stage: modules that are one program on the device."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
import torch

import sambac
from pef.program import Program
from sambahost.golden import evaluated_onnx
from sambahost.models import in_mode, tried
from sambahost.stages import StageProgram
from sambahost.trained_values import TrainedValues

from .compiling import options_for
from .config import UNSET, CompileSettings
from .errors import PyBudaError
from .placeable import Part, Placeable
from .recorded import Chain, RecordedModule


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


def parts_of(modules: Sequence[Placeable], names: Sequence[str]) -> list[Chain | onnx.ModelProto]:
    """Return what is compiled: ONNX models each alone, modules of torch between them together."""
    parts: list[Chain | onnx.ModelProto] = []
    waiting: list[torch.nn.Module] = []
    for module in modules:
        part = module.part()
        if isinstance(part, torch.nn.Module):
            waiting.append(part)
            continue
        if waiting:
            parts.append(Chain(waiting, names if not parts else (), taps=True))
            waiting = []
        parts.append(part)
    return [*parts, Chain(waiting, names if not parts else (), taps=True)] if waiting else parts


def evaluated(
    parts: Sequence[Chain | onnx.ModelProto], sample: Sequence[torch.Tensor], held: TrainedValues
) -> tuple[torch.Tensor, ...]:
    """Return what torch and the evaluator of ONNX give for a sample, with values of a device."""
    found = tuple(sample)
    for part in parts:
        if isinstance(part, torch.nn.Module):
            with held.within(part), in_mode(part, training=False), torch.no_grad():
                found = part(*found)
            found = found[: len(found) - len(part.taps())]
            continue
        found = evaluated_onnx(part, found)
    return found
