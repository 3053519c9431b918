"""Layers of a model for inference, quantised as options want it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import onnx_ir as ir

from pef.text import plural
from sambac.arch import load_device
from sambac.errors import CompileError
from sambac.facts import LayerNumbers
from sambac.frontend import Source
from sambac.graph.constants import Array
from sambac.numerics.integers import ByteScale
from sambac.options import CompileOptions
from sambac.passes.quantize.quantize_convolutions import convolutions
from sambac.passes.quantize.quantized_layers import LayerNote, Ways, in_float32
from sambac.passes.runner import PassContext
from sambac.quantized_precisions import DEFAULT_BLOCK, QUANTIZED

from . import doubts
from .expected import ExpectedOutput, read_expected
from .fallback import Goal, Trials, measured_outputs
from .measuring import ranges_of
from .recipe import (
    IMAGES_OF_TOKENS,
    FoundLayer,
    LayerRecipe,
    images_of,
    layers_of,
    raise_opset,
    time_shares,
    work_of,
)
from .samples import Batch, read_samples

_NOTHING = (
    "the precision is {}, but there is no layer to quantise: a matrix product of float32 with "
    "constant weights and sums of 32 terms or more{}"
)
_NO_ERRORS = (
    "max_error (--max-error): errors are those of outputs of float32, float16 or float64, and {} "
    "has none; let it give out one, or drop max_error."
)
_IMAGES = "in float32: {}, as without calibrate (--calibrate) the ranges of images are not known"


@dataclass(frozen=True)
class QuantizedLayers:
    """The layers of a model and what became of them, what was done in short, and warnings."""

    layers: tuple[LayerNumbers, ...] = ()
    applied: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Measured:
    """Errors on samples: of layers alone, by their names, and of values behind all others."""

    alone: Mapping[str, float] = field(default_factory=dict)
    in_sequence: Mapping[str, float] = field(default_factory=dict)


def quantize(source: Source, options: CompileOptions, passes: PassContext) -> QuantizedLayers:
    """Quantise the layers of the model of `source`, a simple graph, in place.

    Raises `CompileError` for samples that do not fit it, where its opset cannot be raised, and for
    a largest error where no output has one.
    """
    model, chosen = source.model, QUANTIZED[options.precision]
    if not chosen.weights_only:
        raise_opset(model, source.name)
    batches = _batches(source, options)
    warnings = [*doubts.of_samples(batches, _inputs(source))]
    recipe = LayerRecipe(chosen, options.weight_block or DEFAULT_BLOCK)
    if batches and not chosen.weights_only:
        passes.run(model, IMAGES_OF_TOKENS)
    images = [] if chosen.weights_only else [*convolutions(model.graph)]
    if batches and images:
        ranges = ranges_of(model, {*images_of(model)}, batches, options.observer or "minmax")
        scales = {name: ByteScale.of(*ends) for name, ends in ranges.items()}
        recipe = replace(recipe, scales=scales)
        warnings += doubts.of_ranges(images, ranges)
    layers = layers_of(model, recipe)
    work = work_of(model)
    ways: Ways = {}
    measured = _Measured()
    scores: tuple[str, ...] = ()
    expected = _expected(source, options, len(batches))
    if batches and layers:
        trials = Trials(model, recipe, batches, passes)
        goal = Goal(trials, expected)
        alone = trials.alone()
        if options.max_error is not None:
            if not expected and not measured_outputs(model):
                raise CompileError(_NO_ERRORS.format(source.name))
            ways = trials.fallen_back(alone, options.max_error, goal.error)
        measured = _Measured(alone, trials.in_sequence(ways))
        scores = goal.lines(ways)
    errors = _errors_of_outputs(model, measured)
    if options.max_error is None and not expected:
        warnings += doubts.of_outputs(errors)
    passes.run(model, recipe.passes(ways))
    warnings += doubts.of_layers(layers, in_float32(ways), options.max_error)
    if images and not batches:
        warnings.append(_IMAGES.format(plural(len(images), "convolution")))
    elif not layers:
        more = "" if chosen.weights_only else ", or a convolution"
        warnings.append(_NOTHING.format(options.precision, more))
    arch = load_device(options.arch, options.num_tiles, options.n_chips or 1)
    rows = tuple(_rows(model, layers, work, measured, time_shares(model, arch)))
    applied = (*_applied(layers, ways, errors), *scores) if batches else ()
    return QuantizedLayers(rows, applied, tuple(warnings))


def _errors_of_outputs(model: ir.Model, measured: _Measured) -> dict[str, float]:
    """Return the relative errors of the outputs that have some."""
    outputs = {str(value.name) for value in model.graph.outputs}
    return {name: error for name, error in measured.in_sequence.items() if name in outputs}


def _inputs(source: Source) -> dict[str, ir.Value]:
    """Return the inputs of the model by their public names."""
    return dict(zip(source.signature.inputs, source.model.graph.inputs, strict=False))


def _batches(source: Source, options: CompileOptions) -> list[Batch]:
    """Return what there is to calibrate with, and with it the defaults of other inputs."""
    if options.calibrate is None:
        return []
    signature, graph = source.signature, source.model.graph
    ports = _inputs(source)
    given = read_samples(options.calibrate, ports, [*signature.defaults])
    defaults: dict[str, Array] = {
        str(ports[name].name): tensor.numpy() for name, tensor in signature.defaults.items()
    }
    if len(graph.inputs) > len(ports):
        raise CompileError(
            "calibrate (--calibrate): the model has weights that are states, and cannot be run."
        )
    return [{**defaults, **batch} for batch in given]


def _expected(source: Source, options: CompileOptions, batches: int) -> list[ExpectedOutput]:
    """Return what the user expects of the outputs of a model, in so many batches."""
    if options.expect is None:
        return []
    outputs = zip(source.signature.outputs, source.model.graph.outputs, strict=False)
    return read_expected(options.expect, dict(outputs), batches)


def _applied(
    layers: Sequence[FoundLayer], ways: Ways, errors: Mapping[str, float]
) -> tuple[str, ...]:
    """Return what was done, in lines for the log."""
    but = in_float32(ways)
    count = f"{len(layers) - len(but)} of {len(layers)} layers quantised"
    finer = len(ways) - len(but)
    more = [f"{plural(finer, 'layer')} with finer data"] if finer else []
    return (
        count,
        *more,
        *(f"relative error of '{name}': {error:g}" for name, error in errors.items()),
    )


def _rows(
    model: ir.Model,
    layers: Sequence[FoundLayer],
    work: int,
    measured: _Measured,
    times: Mapping[ir.Node, float],
) -> list[LayerNumbers]:
    """Return a row for each layer; `times` are the shares of the operators of the model now."""
    noted = {row.layer: row for row in map(LayerNote.noted, model.graph) if row is not None}
    time_of = {str(node.name): time for node, time in times.items()}
    time_of |= dict.fromkeys(noted, 0.0)  # of a layer, several operators may be noted
    for node, time in times.items():
        if (each := LayerNote.noted(node)) is not None:
            time_of[each.layer] += time
    rows = []
    for layer in layers:
        row = noted.get(layer.name)
        rows.append(
            LayerNumbers(
                layer=layer.name,
                operator=layer.node.op_type,
                precision=row.precision if row else "float32",
                scale=row.scale if row else "",
                weights=row.weights if row else 0.0,
                share=layer.work / max(work, 1),
                time=time_of.get(layer.name, 0.0),
                alone=measured.alone.get(layer.name),
                in_sequence=measured.in_sequence.get(layer.value),
            )
        )
    return rows
