"""The way of a model through the compiler: every stage, in order, on one page.

    inference   frontend -> (weights without content become states) -> legalize -> (round)
                -> simplify -> select kernels
    training    frontend -> build the step (parameters, losses, gradients, updates; see
                `training.build`) -> (round) -> simplify -> select kernels, and so for the
                evaluation graph
    several     each of the two for every model, then their graphs are joined
    all         -> plan (fusion, sections, memory; see `planning.program`) -> estimate -> emit

Each pass leaves a graph in legal form, which is verified after it; each plan is verified by a
checker that shares no code with its planner. Data flows one way: no stage looks ahead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import onnx_ir as ir

import pef
from pef.arguments import BY_NAME, Kind, instance, some
from pef.program import Producer, Program
from pef.states import MAIN_GRAPH, RECOMPUTE, TRAIN_GRAPH, TRAINING, WEIGHT_STATES

from .arch import load_arch
from .emit import emit
from .errors import require, require_arguments
from .facts import Roles
from .frontend import Inputs, Model, Shapes, Source, judging, load
from .graph.named import named_model
from .joining import join
from .knobs import dump_folder
from .options import CompileOptions
from .passes.base import Pass
from .passes.legalize import LEGALIZE
from .passes.precision import kept_exact, require_bfloat16, rounding
from .passes.runner import run_passes
from .passes.select_kernels import (
    SELECT_KERNELS,
    SELECT_LEAN_KERNELS,
    SELECT_TRAINING_KERNELS,
)
from .passes.simplify import SIMPLIFY
from .planning.costs import estimate
from .planning.program import plan_program
from .planning.program_plan import LoweredGraphs
from .producer import producer
from .region_types import settle_types
from .several import (
    GraphSource,
    Loaded,
    check_sources,
    find_shared,
    find_weights,
    joint_source,
    shared_members,
)
from .training.build import build_step
from .training.parameters import take_states
from .training.preview import lower_preview
from .training.recompute import Recompute

Progress = Callable[[str], None]

_OPTIONS = instance(
    CompileOptions, "sambac.CompileOptions, such as CompileOptions(level='O1'),"
).or_none()
_PROGRESS = Kind("a function of a stage's name", callable).or_none()
_GRAPHS = some(instance(GraphSource, ""), "a list of sambac.GraphSource")
_SHARED = Kind("a dict of regions by name", BY_NAME.fits).or_none()


def compile(
    model: Model,
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    inputs: Inputs | None = None,
    dynamic_shapes: Shapes | None = None,
) -> Program:
    """Compile `model` into a program that `sambarun.load` runs and `Program.save` stores.

    `model` is the path of an .onnx file, of a .pt2 program, or `file.py:callable`; an
    onnx.ModelProto or onnx_ir.Model; a torch.nn.Module, with example `inputs` (a tuple, or a dict
    by argument), or a torch.export.ExportedProgram. `dynamic_shapes` says which sizes of a module's
    inputs stay open until the program runs, as torch.export.export takes it; not in training.
    `progress` is called with the name of each stage as it begins. Raises `CompileError` for what
    the user can mend, `InternalError` where the compiler broke its own rules.
    """
    chosen = _options(options, progress)
    report = progress or (lambda stage: None)

    report("load")
    with judging((model, chosen)):
        source = load(model, chosen, inputs, dynamic_shapes)
        lower = _training if chosen.train else _inference
        lowered = lower(source, chosen, report)
        return _finish(lowered, producer(source, chosen), chosen, report)


def compile_graphs(
    graphs: Sequence[GraphSource],
    options: CompileOptions | None = None,
    progress: Progress | None = None,
    *,
    shared: Mapping[str, str] | None = None,
) -> Program:
    """Compile several models into one program, with a named graph for each.

    A model that trains, as `options` or its own say, has two: `name/train`, its training step, and
    `name/eval`. Weights that graphs share (one tensor, or equal ones of one name that nobody
    trains) and equal section programs are in the program once. Inputs and outputs keep their names
    in each graph; other names get the name of their graph in front (`decode.x`) where an earlier
    graph has them already.

    `shared` maps inputs and outputs (`encode.h`, or `h` in every graph) to names of regions. Those
    in one region share memory, which keeps its content from run to run: an output in it is what an
    input in it reads when the caller gives nothing else. Of one graph it holds one input and one
    output at most, and outputs of whole numbers get the type of the inputs there. Weights in one
    region are one weight, whatever graphs call them: what one graph
    trains, the others read. Without a region that holds for weights that are one tensor in memory,
    and each weight without content (see `compile`) is its graph's own.

    Raises as `compile` does, for graphs without names of their own, and for options of one graph
    that are the whole program's.
    """
    chosen = _options(options, progress)
    report = progress or (lambda stage: None)
    require_arguments(graphs=(graphs, _GRAPHS), shared=(shared, _SHARED))
    check_sources(graphs, chosen)
    with judging(*((graph.model, graph.options or chosen) for graph in graphs)):
        return _joined(graphs, chosen, report, shared or {})


def _joined(
    graphs: Sequence[GraphSource],
    chosen: CompileOptions,
    report: Progress,
    shared: Mapping[str, str],
) -> Program:
    """Load, lower and join several models."""
    report("load")
    sources = [load(graph.model, graph.options or chosen, graph.inputs) for graph in graphs]
    weights = find_weights(sources)
    regions = shared_members(graphs, sources, weights, shared)
    settle_types(sources, regions)
    loaded = find_shared(graphs, sources, chosen, weights, regions)
    lowered = [_lowered(each, report) for each in loaded]
    trained = {each.name: each.options for each in loaded if each.options.train}
    made_by = producer(joint_source(loaded), chosen, trained)
    return _finish(join(loaded, lowered, shared), made_by, chosen, report)


def _options(options: CompileOptions | None, progress: Progress | None) -> CompileOptions:
    """Return the options that are meant. Raises `CompileError` for what is none."""
    require_arguments(options=(options, _OPTIONS), progress=(progress, _PROGRESS))
    return CompileOptions() if options is None else options


def _lowered(model: Loaded, report: Progress) -> LoweredGraphs:
    """Lower one of several models."""
    if model.options.train:
        return _training(model.source, model.options, report, model.alone)
    return _inference(model.source, model.options, report, model.states)


def _finish(
    lowered: LoweredGraphs, made_by: Producer, options: CompileOptions, report: Progress
) -> Program:
    """Plan, estimate and emit."""
    arch = load_arch(options.arch)
    plan = plan_program(lowered, options, report)
    report("estimate")
    costs = estimate(plan, arch)
    report("emit")
    program = emit(plan, costs, made_by, arch)
    require("emit", pef.check_program(program))
    return program


def _inference(
    source: Source, options: CompileOptions, report: Progress, wanted: Collection[str] = ()
) -> LoweredGraphs:
    """One graph, whose weights are constants; states if they are `wanted` or not all there."""
    model, signature = source.model, source.signature
    states = take_states(model, source.roles, wanted)
    require_bfloat16(model, source.name, options.precision)
    report("legalize")
    lower_preview(model, source.name, _run)
    _run(model, LEGALIZE, len(LEGALIZE) - 1)
    report("simplify")
    _run(model, (*rounding(options.precision), *SIMPLIFY), 0)
    report("select kernels")
    _run(model, SELECT_KERNELS, 0)
    main = named_model(MAIN_GRAPH, model, signature.inputs, signature.outputs, beside=len(states))
    return LoweredGraphs(
        graphs=(main,),
        defaults=signature.defaults,
        states=states,
        aliases=_aliases_of(source.roles, states),
        features=(WEIGHT_STATES,) if states else (),
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
    report("differentiate")
    step = build_step(source, options, _run, alone)
    again = (Recompute(step.facts.stages),) if options.recompute else ()
    kernels = SELECT_LEAN_KERNELS if options.recompute else SELECT_TRAINING_KERNELS
    rounded = rounding(options.precision, kept_exact(step.facts))
    for model, simplify, select in (
        (step.model, (*rounded, *SIMPLIFY, *again), kernels),
        (step.evaluation, (*rounding(options.precision), *SIMPLIFY), SELECT_KERNELS),
    ):
        report("simplify")
        _run(model, simplify, 0)
        report("select kernels")
        _run(model, select, 0)
    return LoweredGraphs(
        graphs=step.graphs(),
        defaults=step.defaults,
        states=step.facts.states,
        aliases=step.facts.aliases,
        steps={TRAIN_GRAPH: step.facts},
        features=(RECOMPUTE, TRAINING) if options.recompute else (TRAINING,),
        warnings=step.warnings,
    )


def _run(model: ir.Model, passes: Sequence[Pass], legal_from: int) -> None:
    run_passes(model, passes, legal_from=legal_from, dump=dump_folder())
