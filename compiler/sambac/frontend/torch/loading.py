"""The frontend for PyTorch: modules, exported programs, and files that hold or make them.

module    -> torch.export, once as it trains and once as it evaluates    capture
program   -> no_grad becomes detach, writes to buffers become results    regions, writes
          -> ONNX, with translations of our own                          export
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import RLock
from types import MappingProxyType

import torch
from torch.export import ExportedProgram

from pef.files import in_text
from sambac.errors import CompileError
from sambac.facts import Roles
from sambac.frontend.finishing import finish
from sambac.frontend.source import Source
from sambac.frontend.torch.patching import levels_put_back, noting_here, quiet
from sambac.graph.nodes import mark_calm, mark_open, mark_stop
from sambac.options import CompileOptions

from .evaluation import as_it_evaluates
from .export import to_onnx
from .files.models import made_by, program_from
from .modes import are_equal, is_for_both, reading_mode, says_the_same
from .modules.guards import require_dense, require_made, require_python
from .modules.holders import forgotten_holders, make_inputs_known
from .modules.inputs import Shapes, arguments_of, example_of, module_name, on_the_host
from .modules.memory import Surroundings, Told, tell
from .programs.derivatives.written_out import without_derivatives
from .programs.draws import (
    leave_generators_out,
    name_draws,
    require_common_generator,
    spell_draws,
    told_of,
)
from .programs.fitting import (
    give_axes,
    give_one_type,
    pass_nothing_on,
    spell_doubles,
    stop_statistics,
)
from .programs.functional import functional, opens_sizes
from .programs.masked.selections import keep_sizes
from .programs.sizes import rename_sizes, size_names
from .programs.strided import in_order_of_memory
from .programs.writes import arrange_results, require_no_memory
from .recording.capture import capture
from .recording.one_step import one_step_for_all
from .shortcuts import kept_tables
from .states import ModuleStates, kept_gradients, require_own_memory, require_own_names, states_of
from .translations.operators import CALM, OPEN, STOP

_MARKS = MappingProxyType({STOP: mark_stop, CALM: mark_calm, OPEN: mark_open})


@dataclass(frozen=True)
class _Recorded:
    """A model as it evaluates, and as it trains, which is recorded for training only.

    `sizes` are the names of open sizes, by the symbols that the recording has for them.
    """

    name: str
    evaluation: ExportedProgram
    training: ExportedProgram | None
    told: Told = field(default_factory=list)
    sizes: Mapping[str, str] = field(default_factory=dict)


_TURN = RLock()
"""Held while PyTorch records, by modes and functions that a process has once."""


def load_torch(
    model: object, options: CompileOptions, inputs: object = None, dynamic_shapes: Shapes = None
) -> Source:
    """Return a module, program, .pt2 file or `file.py:callable` ready for the passes.

    Parameters and buffers are initializers that share memory with the module's tensors. With
    `options.train` the model is the one that trains, `Source.evaluation` the one that evaluates,
    where that is another graph.
    `Source.roles` says what the initializers are. Raises `CompileError` for what cannot be
    exported as it is meant. Threads take turns.
    """
    with (
        _TURN,
        quiet(),
        noting_here(),
        levels_put_back(),
        kept_tables(),
        one_step_for_all(),
        kept_gradients(model),
        forgotten_holders(),
    ):
        recorded = _record(model, options, inputs, dynamic_shapes)
        if recorded.training is not None:
            _require_own(recorded.name, recorded.training, recorded.evaluation)
        source = _load(recorded, options)
    tell(recorded.told)
    return source


def _require_own(name: str, *programs: ExportedProgram) -> None:
    for program in programs:
        require_own_names(program, name)
        require_own_memory(program, name)


def _load(recorded: _Recorded, options: CompileOptions) -> Source:
    if recorded.training is None:
        source, _ = _export(recorded.evaluation, recorded.name, options)
        rename_sizes(source.model, recorded.sizes)
        return source
    source, states = _export(recorded.training, recorded.name, options)
    source = replace(source, warnings=told_of(recorded.training))
    if are_equal(recorded.training, recorded.evaluation) and says_the_same(source):
        return source  # most of the time of a compilation is spent on exporting
    evaluation, _ = _export(recorded.evaluation, recorded.name, options, states)
    return replace(source, evaluation=evaluation.model)


def _record(
    model: object, options: CompileOptions, inputs: object, dynamic_shapes: Shapes
) -> _Recorded:
    name = module_name(model) if isinstance(model, torch.nn.Module) else type(model).__name__
    if dynamic_shapes is not None and not isinstance(model, torch.nn.Module):
        raise CompileError(
            "dynamic_shapes belong to a torch.nn.Module with example inputs; an exported program "
            "has them already"
        )
    if isinstance(model, (str, os.PathLike)):
        path = os.fspath(model)
        name = in_text(Path(path.rpartition(":")[0] or path).stem)
        if inputs is not None:
            raise CompileError(f"{path} brings its inputs itself; give none")
        model, inputs, dynamic_shapes = _read(path)
    if isinstance(model, ExportedProgram):
        if inputs is not None:
            raise CompileError("an exported program has its inputs already; give none")
        if not options.train:
            return _Recorded(name, model, None)
        return _Recorded(name, as_it_evaluates(model, name), model)
    assert isinstance(model, torch.nn.Module)
    require_python(model)
    require_made(model)
    example = example_of(model, inputs, dynamic_shapes)
    make_inputs_known(arguments_of(model.forward, example.args, example.kwargs))
    require_dense(model, example)
    if options.train and dynamic_shapes is not None:
        raise CompileError(
            f"{name}: training needs the sizes of all inputs; give no dynamic_shapes, and example "
            "inputs of the sizes that it trains with"
        )
    example = on_the_host(example)
    around = Surroundings.of(model, example)
    if not options.train:
        evaluation, told = capture(model, example, around, training=False)
        sizes = size_names(model, example, evaluation)
        return _Recorded(name, evaluation, None, told, sizes)
    with reading_mode(model, around.found.names) as reader:
        training, told = capture(model, example, around, training=True)
    # Of calls that are not all alike each mode has something to say.
    if not told and is_for_both(training, reader):
        return _Recorded(name, training, training)
    with kept_gradients(model):  # what trains is what does after train()
        evaluation, others = capture(model, example, around, training=False)
    return _Recorded(name, evaluation, training, [*told, *others])


def _read(path: str) -> tuple[object, object, Shapes]:
    """Return the model in a file, or what its code makes, with inputs and open sizes."""
    return (program_from(path), None, None) if path.endswith(".pt2") else made_by(path)


def _export(
    program: ExportedProgram, name: str, options: CompileOptions, states: ModuleStates | None = None
) -> tuple[Source, ModuleStates]:
    """Return the model of `program`, and its states; `states`, if others than its own are wanted.

    With states of others the writes to buffers are left out.
    """
    training = options.train and states is None
    require_common_generator(program, name)
    program = without_derivatives(functional(program, name, training=training), name)
    if opens_sizes(program):
        keep_sizes(program, training=training)
    leave_generators_out(program)
    give_one_type(program)
    give_axes(program)
    pass_nothing_on(program)
    in_order_of_memory(program)
    if training:
        name_draws(program)
        stop_statistics(program)
    program = spell_doubles(spell_draws(program))
    if not options.train:
        require_no_memory(program)
    results = arrange_results(program, updates=training)
    states = states or states_of(program, results.buffers)
    exported = to_onnx(program, results, states, name=name, training=training)
    source = finish(exported.model, options, name)
    for node, kind in exported.marked.items():
        _MARKS[kind](node)
    public = len(source.signature.outputs) - len(exported.updates)
    signature = replace(source.signature, outputs=source.signature.outputs[:public])
    roles = Roles(
        parameters=states.parameters,
        frozen=states.frozen,
        buffers=states.buffers,
        aliases=states.aliases,
        updates=exported.updates,
    )
    return replace(source, signature=signature, roles=roles), states
