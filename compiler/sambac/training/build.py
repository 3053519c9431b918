"""The graph of a whole training step, and beside it that of an evaluation, from a model.

The stages in order:

    parameters     weights and buffers become inputs of the graph: states
    canonical      an ONNX file goes to opset 23, with batch statistics and active dropout
    legalize       both graphs into legal form
    losses         found among the outputs, or built on them
    dropout        masks become inputs of the graph
    differentiate  the gradients of what is trained
    step           ZEROGRAD, GRADNORM and OPT: updates of the states
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from pef.program import SectionType
from pef.wording import listed
from sambac.autodiff import differentiate
from sambac.errors import CompileError
from sambac.facts import Roles, State, StepFacts
from sambac.frontend import Source
from sambac.graph.builder import Builder
from sambac.graph.node_facts import static_shape
from sambac.options import CompileOptions
from sambac.passes.base import Pass
from sambac.passes.legalize import LEGALIZE
from sambac.passes.training import AFTER_GRADIENTS, BEFORE_GRADIENTS, LEGALIZE_TRAINING

from .canonical import to_evaluation, to_training_opset, train_dropouts, train_normalizations
from .dropout import Masks, take_masks
from .losses import build_losses, parse_losses
from .parameters import Trainable, adopt_states, frozen_by, roles_of, take_parameters
from .step import StepParts, StepWish, add_balanced_step, add_step
from .step_graphs import Step

_ALL = ""

RunPasses = Callable[[ir.Model, Sequence[Pass], int], None]
"""Runs passes over a model; from the given one on the graph is in legal form."""


def build_step(source: Source, options: CompileOptions, run: RunPasses) -> Step:
    """Return the step that `options` asks for. The models of `source` are used up.

    Raises `CompileError` for what cannot be trained, with everything that stands in the way.
    """
    roles = frozen_by(source.roles or roles_of(source.model), options.freeze)
    evaluation = source.evaluation or source.model.clone()
    trainable = take_parameters(source.model, roles)
    adopt_states(evaluation, trainable.states)
    model = source.model
    if source.roles is None:
        to_training_opset(model, source.name)
        to_training_opset(evaluation, source.name)
        to_evaluation(evaluation)
    for graph in (model, evaluation):
        run(graph, LEGALIZE_TRAINING, len(LEGALIZE_TRAINING) - 1)
        _require_static(graph, source.name)
    if source.roles is None:
        roles = replace(roles, updates=train_normalizations(model, roles))
        train_dropouts(model)
    losses, public, evaluated = _losses(source, model, evaluation, options)
    masks = take_masks(model)
    run(model, BEFORE_GRADIENTS, 0)
    gradients, seeds = _gradients(model, trainable, losses, apart=options.balance)
    if options.balance:
        parts = add_balanced_step(model, gradients, _wish(options))
    else:
        parts = add_step(model, gradients[_ALL], _wish(options))
    for graph in (model, evaluation):
        run(graph, AFTER_GRADIENTS, 0)
        run(graph, LEGALIZE, len(LEGALIZE) - 1)
    return Step(
        model=model,
        evaluation=evaluation,
        facts=_facts((trainable, roles, masks, parts), losses, public),
        public={**public, **{name: name for name in parts.public}},
        evaluated=evaluated,
        defaults={**source.signature.defaults, **seeds},
        warnings=(*_unreached(trainable, parts.gradients), *parts.warnings),
    )


def _wish(options: CompileOptions) -> StepWish:
    return StepWish(
        optimizers=options.optimizers,
        max_grad_norm=options.max_grad_norm,
        accumulate=options.accumulate,
        pack=options.level != "O0",
        reduce=options.data_parallel,
    )


def _require_static(model: ir.Model, name: str) -> None:
    """Raise `CompileError` unless the sizes of all inputs are known: training fixes them."""
    open_ = [f"'{value.name}'" for value in model.graph.inputs if static_shape(value) is None]
    if open_:
        raise CompileError(
            f"{name}: training needs the sizes of all inputs, those of "
            f"{listed(open_, separator=', ')} are open; give them (--input NAME=64x784)"
        )


def _losses(
    source: Source, model: ir.Model, evaluation: ir.Model, options: CompileOptions
) -> tuple[tuple[str, ...], dict[str, str], dict[str, str]]:
    """Return the losses, and the public outputs of both graphs with the losses built on them."""
    wanted = parse_losses(options.loss)
    names = source.signature.outputs
    found = build_losses(model, wanted, names)
    build_losses(evaluation, wanted, names)
    built = tuple(name for name in found if name not in names)
    public = (*names, *built)
    values = [str(out.name) for out in model.graph.outputs]
    evaluated = [str(out.name) for out in evaluation.graph.outputs]
    return (
        found,
        dict(zip(public, (*values[: len(names)], *built), strict=True)),
        dict(zip(public, (*evaluated[: len(names)], *built), strict=True)),
    )


def _gradients(
    model: ir.Model, trainable: Trainable, losses: Sequence[str], *, apart: bool
) -> tuple[dict[str, dict[str, ir.Value]], dict[str, ir.TensorProtocol]]:
    """Append the gradients; return them by parameter, and the default gradients of the losses.

    The gradients are those of each loss if `apart`, else of all together under the key `_ALL`.
    """
    builder = Builder(model)
    outputs = {str(value.name): value for value in model.graph.outputs}
    seeds: dict[str, ir.Value] = {}
    defaults: dict[str, ir.TensorProtocol] = {}
    for name in losses:
        loss = outputs[name]
        assert loss.dtype is not None
        shape = static_shape(loss) or ()
        seed = builder.input(f"{name}__grad", loss.dtype, shape)
        seeds[name] = seed
        defaults[str(seed.name)] = ir.Tensor(np.ones(shape, loss.dtype.numpy()))
    chosen = {name: (name,) for name in losses} if apart else {_ALL: tuple(losses)}
    gradients = {
        key: _walk_from({name: seeds[name] for name in names}, model, trainable)
        for key, names in chosen.items()
    }
    return gradients, defaults


def _walk_from(
    seeds: Mapping[str, ir.Value], model: ir.Model, trainable: Trainable
) -> dict[str, ir.Value]:
    """Append the gradients of the outputs named in `seeds`; return them by parameter."""
    outputs = {str(value.name): value for value in model.graph.outputs}
    inputs = {str(value.name): value for value in model.graph.inputs}
    trained = [inputs[name] for name in trainable.trained]
    found = differentiate(model, {outputs[name]: seed for name, seed in seeds.items()}, trained)
    if not found:
        raise CompileError(
            f"the loss {listed(tuple(seeds), separator=', ')} depends on none of the parameters "
            f"that are to be trained ({listed(trainable.trained, 8, ', ')})"
        )
    return {str(value.name): found[value] for value in trained if value in found}


def _unreached(trainable: Trainable, gradients: Mapping[str, str]) -> list[str]:
    idle = [name for name in trainable.trained if name not in gradients]
    shown = listed(idle, 8, ", ")
    return [f"no loss depends on {shown}: not trained"] if idle else []


def _facts(
    pieces: tuple[Trainable, Roles, Masks, StepParts],
    losses: tuple[str, ...],
    public: Mapping[str, str],
) -> StepFacts:
    trainable, roles, masks, parts = pieces
    forward = (*public.values(), *roles.updates.values())
    stages = {**dict.fromkeys(forward, SectionType.FWD), **parts.stages}
    states: dict[str, State] = {**trainable.states, **masks.states, **parts.states}
    return StepFacts(
        stages=stages,
        updates={**{new: buffer for buffer, new in roles.updates.items()}, **parts.updates},
        states=states,
        argins={**masks.argins, **parts.argins},
        masks=masks.masks,
        gradients=parts.gradients,
        losses=losses,
        aliases=roles.aliases,
        packs=parts.packs,
        reduced=parts.reduced,
    )
