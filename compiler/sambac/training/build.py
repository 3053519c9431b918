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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from pef.graphs import taken_apart
from pef.program import SectionType
from pef.wording import listed
from sambac.errors import CompileError
from sambac.facts import Roles, State, StepFacts
from sambac.frontend import Source
from sambac.graph.decisions import Decisions
from sambac.graph.nodes import static_shape
from sambac.options import CompileOptions
from sambac.passes.base import Pass
from sambac.passes.differentiation.keep_gates import LayerPass
from sambac.passes.legalize.check_kernels import require_one_type
from sambac.passes.legalize.inline_functions import InlineFunctions
from sambac.passes.legalize.names_and_order import SortNodes
from sambac.passes.pipelines import (
    AFTER_GRADIENTS,
    BEFORE_GRADIENTS,
    CHOSEN_BRANCHES,
    KEEP_FOR_GRADIENTS,
    LEGALIZE,
    LEGALIZE_TRAINING,
    LOWER_KEPT,
    WHOLE_FOR_GRADIENTS,
)
from sambac.passes.runner import Contents, PassContext

from .backward import (
    Ends,
    Gradients,
    add_gradients,
    check_ends,
    check_starts,
    export_input_gradients,
    left_out,
    reached,
    unreached,
)
from .canonical import (
    settle_weights,
    to_evaluation,
    to_training_opset,
    told_of_inner,
    train_dropouts,
    train_normalizations,
)
from .dropout import Masks, take_masks
from .losses import build_losses, parse_losses
from .parameters import Trainable, adopt_states, frozen_by, roles_of, take_parameters
from .step import StepOptions, StepParts, add_balanced_step, add_step
from .step_graphs import StepGraphs
from .suspects import told_of_suspects


def build_step(
    source: Source,
    options: CompileOptions,
    passes: PassContext,
    alone: frozenset[str],
) -> StepGraphs:
    """Return the step that `options` asks for. The models of `source` are used up.

    Parameters in `alone` lie in memory by themselves, as other graphs than these update them too.
    Raises `CompileError` for what cannot be trained, with everything that stands in the way.
    """
    inner = settle_weights(source.model) if source.roles is None else ()
    roles = frozen_by(
        source.roles or roles_of(source.model), options.freeze, allow_all=bool(options.input_grads)
    )
    model = source.model
    suspects = () if source.roles else told_of_suspects(model, roles)
    evaluation, trainable = _legal(source, roles, passes)
    roles, told = (roles, ()) if source.roles else _brought_into_training(model, roles, inner)
    losses, public, evaluated = _losses(source, model, evaluation, options)
    ends = Ends(trainable.trained, check_ends(model, options.input_grads, trainable.states))
    wanted = check_starts(model, options.backward_from, public)
    masks = take_masks(model) if "Dropout" in Contents(model).operators else Masks()
    passes.run(model, BEFORE_GRADIENTS)
    started = reached(model, wanted, public, ends)
    starts = {name: public[name] for name in dict.fromkeys((*losses, *started))}
    gradients = _differentiate(model, starts, ends, options, passes)
    exported = export_input_gradients(model, gradients.inputs)
    parts = _parts(model, gradients, options, alone)
    for graph in (model, evaluation):
        passes.run(graph, AFTER_GRADIENTS)
        passes.run(graph, LEGALIZE, legal_from=len(LEGALIZE) - 1)
    return StepGraphs(
        model=model,
        evaluation=evaluation,
        facts=_with_inputs(
            _facts((trainable, roles, masks, parts), gradients.seeds, public), exported
        ),
        public={**public, **{name: name for name in (*exported.values(), *parts.public)}},
        evaluated=evaluated,
        defaults={**source.signature.defaults, **gradients.defaults},
        warnings=(
            *source.warnings,
            *suspects,
            *told,
            *left_out(wanted, started),
            *unreached(ends, parts.gradients, gradients.inputs),
            *parts.warnings,
        ),
    )


def _brought_into_training(
    model: ir.Model, roles: Roles, inner: Sequence[str]
) -> tuple[Roles, tuple[str, ...]]:
    """Let a model that was exported as it evaluates train; return warnings of what does not.

    `inner` are weights that no step reaches.
    """
    roles = replace(roles, updates=train_normalizations(model, roles))
    train_dropouts(model)
    return roles, told_of_inner(model, roles, inner)


def _legal(source: Source, roles: Roles, passes: PassContext) -> tuple[ir.Model, Trainable]:
    """Bring the model of `source` and its evaluation into legal form; return the latter too."""
    model = source.model
    passes.run(model, (SortNodes(),), legal_from=1)  # only what is in order can be copied
    if source.roles is None:  # what changes its opset is looked at operator by operator
        passes.run(model, (InlineFunctions(),), legal_from=1)
    evaluation = source.evaluation or model.clone()
    trainable = take_parameters(model, roles)
    adopt_states(evaluation, trainable.states)
    if source.roles is None:
        to_training_opset(model, source.name)
        to_training_opset(evaluation, source.name)
        to_evaluation(evaluation)
    for graph in (model, evaluation):
        passes.run(graph, LEGALIZE_TRAINING, legal_from=len(LEGALIZE_TRAINING) - 1)
        _require_static(graph, source.name)
        _settle(graph, passes)
    return evaluation, trainable


def _settle(model: ir.Model, passes: PassContext) -> None:
    """Take the branches that constants choose: what is in them trains as all else does.

    A size that a constant tells (the pads of a Pad) may choose a branch, whose results tell the
    next size: so this is done until nothing more comes of it.
    """
    left = -1
    while (unsettled := _unsettled(model.graph)) not in (0, left):
        left = unsettled
        passes.run(model, CHOSEN_BRANCHES)


def _unsettled(graph: ir.Graph) -> int:
    """Return how many choices, and results without known sizes, are in `graph`."""
    choices = sum(node.op_type == "If" for node in graph)
    return choices + sum(
        static_shape(out) is None for node in graph for out in node.outputs if out.name
    )


def _differentiate(
    model: ir.Model,
    starts: Mapping[str, str],
    ends: Ends,
    options: CompileOptions,
    passes: PassContext,
) -> Gradients:
    """Append the backward pass, for which layers keep what takes long to compute anew."""
    exact = options.precision == "float32" and not options.number_rules
    if exact:
        passes.run(model, WHOLE_FOR_GRADIENTS)
    if exact and not options.recompute:
        passes.run(model, _decided(KEEP_FOR_GRADIENTS, passes.decisions))
    gradients = add_gradients(
        model, starts, ends, apart=options.balance, decisions=passes.decisions
    )
    passes.run(model, _decided(LOWER_KEPT, passes.decisions))
    return gradients


def _decided(steps: Iterable[Pass], decisions: Decisions) -> tuple[Pass, ...]:
    """Return `steps`, of which those that choose do as `decisions` say."""
    return tuple(
        replace(step, decisions=decisions) if isinstance(step, LayerPass) else step
        for step in steps
    )


def _parts(
    model: ir.Model, gradients: Gradients, options: CompileOptions, alone: frozenset[str]
) -> StepParts:
    """Append what follows the backward pass."""
    asked = _step_options(model, options, alone)
    if options.balance:
        return add_balanced_step(model, gradients.parameters, asked)
    return add_step(model, gradients.joined, asked)


def _step_options(model: ir.Model, options: CompileOptions, alone: frozenset[str]) -> StepOptions:
    return StepOptions(
        optimizers=options.optimizers,
        max_grad_norm=options.max_grad_norm,
        accumulate=options.accumulate,
        pack=options.level != "O0",
        alone=alone | _placed(options.memory, model),
        reduce=options.data_parallel,
    )


def _placed(memory: Mapping[str, str], model: ir.Model) -> frozenset[str]:
    """Return the inputs of the graph whose memory, or that of their state, is chosen by hand."""
    chosen = {name for placed in memory for name in (placed, taken_apart(placed)[0])}
    return frozenset(chosen.intersection(str(value.name) for value in model.graph.inputs))


def _require_static(model: ir.Model, name: str) -> None:
    """Raise `CompileError` unless the sizes of all inputs are known: training fixes them."""
    open_ = [f"'{value.name}'" for value in model.graph.inputs if static_shape(value) is None]
    if open_:
        raise CompileError(
            f"{name}: training needs the sizes of all inputs, but those of "
            f"{listed(open_, separator=', ')} are open; give them (--input NAME=64x784)"
        )


def _losses(
    source: Source, model: ir.Model, evaluation: ir.Model, options: CompileOptions
) -> tuple[tuple[str, ...], dict[str, str], dict[str, str]]:
    """Return the losses, and the public outputs of both graphs with the losses built on them."""
    require_one_type(model)  # before types of outputs and gradients are blamed
    wanted = parse_losses(options.loss)
    names = source.signature.outputs
    if len(evaluation.graph.outputs) < len(names):
        raise CompileError(
            f"{source.name} returns {len(names)} tensors while it trains and "
            f"{len(evaluation.graph.outputs)} while it evaluates; return as many in both"
        )
    found: tuple[str, ...] = ()
    if wanted or not options.backward_from:
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


def _with_inputs(facts: StepFacts, gradients: Mapping[str, str]) -> StepFacts:
    """Return `facts` with the gradients of inputs, by input."""
    return replace(
        facts,
        stages={**facts.stages, **dict.fromkeys(gradients.values(), SectionType.BCKWD)},
        gradients={**facts.gradients, **gradients},
    )


def _facts(
    pieces: tuple[Trainable, Roles, Masks, StepParts],
    seeds: Mapping[str, str],
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
        argins=(*masks.argins, *parts.argins),
        masks=masks.masks,
        gradients=parts.gradients,
        seeds=seeds,
        aliases=roles.aliases,
        packs=parts.packs,
        terms=parts.terms,
        reduced=parts.reduced,
    )
