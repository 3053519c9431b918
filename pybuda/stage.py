"""A stage: modules that are one program on the device."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import torch

import sambac
from pef.program import Program
from sambahost.chains import Chain
from sambahost.compiled_step import AnyPart
from sambahost.models import in_mode, tried
from sambahost.onnx_part import OnnxPart
from sambahost.pass_checks import passes_checked
from sambahost.sample_runner import RunSettings
from sambahost.stages import StageProgram
from sambahost.trained_values import NOTHING, TrainedValues

from .compiling import options_for
from .config import UNSET, CompileSettings, compiler
from .errors import PyBudaError, as_own
from .placeable import Placeable
from .recorded import RecordedModule


def compiled(
    part: AnyPart,
    sample: Sequence[torch.Tensor],
    names: Sequence[str] = (),
    settings: CompileSettings = UNSET,
    held: TrainedValues = NOTHING,
) -> StageProgram:
    """Compile `part` for tensors like those of `sample`, whose arguments are `names`.

    `settings` are what the configuration asks for, `held` what a device has trained. Raises
    `sambac.CompileError` for what cannot be compiled, and `PyBudaError` for names that an ONNX
    model does not have.
    """
    with as_own():
        with passes_checked(settings.passes, "the compiler"):
            program = _compiled(part, tuple(sample), settings, held)
        graph = program.graphs[0]
        inputs = tuple(port.name for port in graph.inputs)
        if isinstance(part, OnnxPart):
            inputs = part.ports(names, len(sample))
    compiler()._known.add_program(program, settings.number_rules)
    spoken = tuple(names) or tuple(f"input {index}" for index in range(len(inputs)))
    return StageProgram(program, inputs, spoken, tuple(port.name for port in graph.outputs))


def _compiled(
    part: AnyPart,
    sample: tuple[torch.Tensor, ...],
    settings: CompileSettings,
    held: TrainedValues,
) -> Program:
    if isinstance(part, OnnxPart):
        return sambac.compile(part.valued(held.values()), options_for(part, settings))
    with held.within(part), in_mode(part, training=False):
        if any(isinstance(each, RecordedModule) for each in part.modules()):
            tried(part, sample, training=False)  # so that operators have their names
        return sambac.compile(part, options_for(part, settings), inputs=sample)


def run_settings(settings: CompileSettings) -> RunSettings:
    """Return how programs run that were compiled with these settings."""
    return RunSettings(settings.threads, "pybuda", PyBudaError)


def parts_of(
    modules: Sequence[Placeable], names: Sequence[str], kept: Sequence[str] | None = None
) -> list[Chain | OnnxPart]:
    """Return what is compiled: ONNX models each alone, modules of torch between them together.

    They give what queues of operators get, too, and what operators called `kept` give, unless that
    is None.
    """
    parts: list[Chain | OnnxPart] = []
    placed = [module.part() for module in modules]
    for _, group in groupby(placed, lambda part: isinstance(part, OnnxPart)):
        together = [*group]
        models = [part.keeping(kept or ()) for part in together if isinstance(part, OnnxPart)]
        of_torch = [part for part in together if not isinstance(part, OnnxPart)]
        for part in of_torch:
            if isinstance(part, RecordedModule):
                part.wanted = kept or ()
        parts += models or [Chain(of_torch, PyBudaError, () if parts else names, kept)]
    return parts
