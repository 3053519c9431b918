"""The way of a model through the compiler: every stage, in order, on one page.

    inference   frontend -> (weights without content become states) -> legalize -> (round)
                -> simplify -> (quantise) -> select kernels
    training    frontend -> build the step (parameters, losses, gradients, updates; see
                `training.build`) -> (round) -> simplify -> select kernels, and so for the
                evaluation graph
    several     each of the two for every model, then their graphs are joined
    all         -> plan (fusion, sections, memory; see `planning.program`) -> estimate -> emit

Each pass leaves a graph in legal form, which is verified after it; each plan is verified by a
checker that shares no code with its planner. Data flows one way: no stage looks ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

import pef
from pef.program import Producer, Program, SectionType
from pef.states import MAIN_GRAPH, RECOMPUTE, TRAIN_GRAPH, TRAINING, WEIGHT_STATES

from .arch import load_device
from .emit import emit, producer
from .errors import require
from .facts import LayerNumbers, Record, Roles, State, StepFacts
from .frontend import Source, judging, load
from .graph.decisions import Decisions
from .graph.open_sizes import declared_sizes, name_open_sizes
from .models import GraphSource, Inputs, Model, Progress, Shapes
from .multi_model import (
    Loaded,
    check_sources,
    find_shared,
    find_weights,
    join,
    joint_source,
    settle_types,
    shared_members,
    with_options,
)
from .options import CompileOptions
from .passes.base import Pass
from .passes.device_numbers.precision import raise_for_rounding, rounding
from .passes.device_numbers.round_numbers import RoundNumbers
from .passes.legalize.ownership import OwnUpdates
from .passes.pipelines import (
    LEGALIZE,
    SELECT_KERNELS,
    SELECT_LEAN_KERNELS,
    SELECT_TRAINING_KERNELS,
    SIMPLIFY,
    SPARE_ARITHMETIC,
    WORKAROUNDS,
)
from .passes.runner import PassContext, watching
from .passes.select_kernels.choose_convolutions import ChooseConvolutions
from .passes.select_kernels.choose_products import ChooseProducts
from .planning.chips import compared_with_one
from .planning.estimate import estimate
from .planning.plans import LoweredGraphs, named_model
from .planning.program import plan_program
from .quantization import QuantizedLayers, quantize
from .quantized_precisions import QUANTIZED
from .training.build import build_step
from .training.parameters import take_states
from .training.preview import PREVIEW_DOMAIN, lower_preview
from .training.recompute import Recompute
from .tuning_file import read_tuning

_ROUNDS_NOTHING = ("float32", *QUANTIZED)


def compile_model(
    model: Model,
    options: CompileOptions,
    report: Progress,
    inputs: Inputs | None,
    dynamic_shapes: Shapes | None,
) -> Program:
    """Compile one model; see `sambac.compile`."""
    with judging((model, options)):
        source, lowered = lower_model(model, options, report, inputs, dynamic_shapes)
        made_by = producer(source, options, lowered.record)
        return _finish(lowered, made_by, options, report)


def lower_model(
    model: Model,
    options: CompileOptions,
    report: Progress,
    inputs: Inputs | None = None,
    dynamic_shapes: Shapes | None = None,
) -> tuple[Source, LoweredGraphs]:
    """Load a model and do all that comes before planning."""
    report("load")
    source = load(model, options, inputs, dynamic_shapes)
    lower = _training if options.train else _inference
    return source, lower(source, options, report)


def compile_models(
    graphs: Sequence[GraphSource],
    options: CompileOptions,
    report: Progress,
    shared: Mapping[str, str],
) -> Program:
    """Compile several models into one program; see `sambac.compile_graphs`."""
    check_sources(graphs, options)
    graphs = [with_options(graph, options) for graph in graphs]
    with judging(*((graph.model, graph.options or options) for graph in graphs)):
        return _joined(graphs, options, report, shared)


def _joined(
    graphs: Sequence[GraphSource],
    chosen: CompileOptions,
    report: Progress,
    shared: Mapping[str, str],
) -> Program:
    """Load, lower and join several models."""
    report("load")
    sources = [
        load(graph.model, graph.options or chosen, graph.inputs, graph.dynamic_shapes)
        for graph in graphs
    ]
    weights = find_weights(sources)
    regions = shared_members(graphs, sources, weights, shared)
    settle_types(sources, regions)
    loaded = find_shared(graphs, sources, chosen, weights, regions)
    lowered = [_lowered(each, report) for each in loaded]
    trained = {each.name: each.options for each in loaded if each.options.train}
    joined = join(loaded, lowered, shared)
    made_by = producer(joint_source(loaded), chosen, joined.record, trained)
    return _finish(joined, made_by, chosen, report)


def _lowered(model: Loaded, report: Progress) -> LoweredGraphs:
    """Lower one of several models."""
    if model.options.train:
        return _training(model.source, model.options, report, model.alone)
    return _inference(model.source, model.options, report, model.states)


def _finish(
    lowered: LoweredGraphs, made_by: Producer, options: CompileOptions, report: Progress
) -> Program:
    """Plan, estimate and emit."""
    arch = load_device(options.arch, options.num_tiles, options.n_chips or 1)
    plan = plan_program(lowered, options, report)
    report("estimate")
    costs = estimate(plan, arch)
    if arch.chips > 1:
        costs = compared_with_one(plan, costs, options)
    report("emit")
    program = emit(plan, costs, made_by, arch)
    require("emit", pef.check_program(program))
    return program


def _inference(
    source: Source, options: CompileOptions, report: Progress, wanted: Collection[str] = ()
) -> LoweredGraphs:
    """One graph, whose weights are constants; states if they are `wanted` or not all there."""
    model, signature, passes = source.model, source.signature, _pass_context(options)
    declared = declared_sizes(model.graph)
    if _rounds(options):
        raise_for_rounding(model, source.name, passes)
    states = take_states(model, source.roles, wanted) if source.roles or wanted else {}
    report("legalize")
    if PREVIEW_DOMAIN in model.opset_imports:
        lower_preview(model, source.name, passes)
    passes.run(model, LEGALIZE, legal_from=len(LEGALIZE) - 1)
    report("simplify")
    rounded = _rounding(options, states)
    applied, warnings = _reported(rounded, model)
    passes.run(model, (*rounded, *SIMPLIFY))
    quantized = QuantizedLayers()
    if options.precision in QUANTIZED:
        passes.run(model, (*SPARE_ARITHMETIC, *WORKAROUNDS))
        report("quantise")
        quantized = quantize(source, options, passes)
    report("select kernels")
    passes.run(model, SELECT_KERNELS)
    name_open_sizes(model.graph, declared)
    main = named_model(MAIN_GRAPH, model, signature.inputs, signature.outputs, beside=len(states))
    return LoweredGraphs(
        graphs=(main,),
        defaults=signature.defaults,
        states=states,
        aliases=_aliases_of(source.roles, states),
        features=(WEIGHT_STATES,) if states else (),
        warnings=(*warnings, *quantized.warnings),
        record=_record((*applied, *quantized.applied), passes.decisions, quantized.layers),
    )


def _aliases_of(roles: Roles | None, states: Collection[str]) -> dict[str, str]:
    """Return further names of `states`."""
    known = roles.aliases if roles else {}
    return {alias: name for alias, name in known.items() if name in states}


def _training(
    source: Source,
    options: CompileOptions,
    report: Progress,
    alone: frozenset[str] = frozenset(),
) -> LoweredGraphs:
    """Two graphs over the same states: a training step and an evaluation."""
    passes = _pass_context(options)
    report("differentiate")
    step = build_step(source, options, passes, alone)
    states = step.facts.states
    rounded = _rounding(options, states, step.facts)
    applied, warnings = _reported(rounded, step.model)
    again = (Recompute(step.facts.stages),) if options.recompute else ()
    kernels = SELECT_LEAN_KERNELS if options.recompute else SELECT_TRAINING_KERNELS
    kernels = (*kernels, *_own_updates(step.facts))
    _improve(step.model, (*rounded, *SIMPLIFY, *again), kernels, passes, report)
    rounded = _rounding(options, states)
    _improve(step.evaluation, (*rounded, *SIMPLIFY), SELECT_KERNELS, passes, report)
    return LoweredGraphs(
        graphs=step.graphs(),
        defaults=step.defaults,
        states=states,
        aliases=step.facts.aliases,
        steps={TRAIN_GRAPH: step.facts},
        features=(RECOMPUTE, TRAINING) if options.recompute else (TRAINING,),
        warnings=(*step.warnings, *warnings),
        record=_record(applied, passes.decisions),
    )


def _improve(
    model: ir.Model,
    simplify: Sequence[Pass],
    kernels: Sequence[Pass],
    passes: PassContext,
    report: Progress,
) -> None:
    """Simplify one graph of a training program, and select its kernels and formulations."""
    report("simplify")
    passes.run(model, simplify)
    report("select kernels")
    # Convolutions are written as is chosen, for products the choice is noted: see `variants`.
    written, noted = ChooseConvolutions(passes.decisions), ChooseProducts(passes.decisions)
    passes.run(model, (written, *kernels, noted))


def _rounds(options: CompileOptions) -> bool:
    return options.precision not in _ROUNDS_NOTHING or bool(options.number_rules)


def _rounding(
    options: CompileOptions, states: Mapping[str, State], facts: StepFacts | None = None
) -> tuple[RoundNumbers, ...]:
    """Return the passes that round as `options` say, which are none for float32."""
    return rounding(options, states, facts) if _rounds(options) else ()


def _reported(
    passes: tuple[RoundNumbers, ...], model: ir.Model
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return lines for the log about what `passes` are to do to `model`, and warnings."""
    reports = [each.report(model) for each in passes]
    lines = tuple(line for found, _ in reports for line in found)
    warnings = tuple(warning for _, found in reports for warning in found)
    return lines, warnings


def _own_updates(facts: StepFacts) -> tuple[OwnUpdates, ...]:
    """Return what is done about states that operators overwrite for which kernels are chosen.

    Those are of FWD and BCKWD, where gradients add up; formulas of later stages are made to
    overwrite.
    """
    free = (SectionType.FWD, SectionType.BCKWD)
    updates = {new: old for new, old in facts.updates.items() if facts.stages[new] in free}
    return (OwnUpdates(updates),) if updates else ()


def _pass_context(options: CompileOptions) -> PassContext:
    measured = {} if options.tuning is None else read_tuning(options.tuning).chosen
    return PassContext(watching(), Decisions(measured))


def _record(
    applied: Sequence[str], decisions: Decisions, layers: tuple[LayerNumbers, ...] = ()
) -> Record:
    """Return what is said of a compilation: what was done, and how operators are formulated."""
    used = (f"tuning: {decisions.used()}",) if decisions.measured else ()
    return Record((*applied, *used), layers, decisions.choices() if decisions.made else ())
