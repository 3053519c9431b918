"""Layers of a model for inference, quantised as options want it."""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from sambac.facts import LayerNumbers
from sambac.options import CompileOptions
from sambac.passes.base import Pass
from sambac.passes.eliminate_dead_code import EliminateDeadCode
from sambac.passes.quantize_products import QuantizeProducts
from sambac.passes.quantize_weights import QuantizeWeights
from sambac.passes.runner import PassContext
from sambac.quantized_precisions import DEFAULT_BLOCK, QUANTIZED, Quantized

from .layers import rows_of

_NOTHING = (
    "the precision is {}, but there is no layer to quantise: a matrix product of float32 with "
    "constant weights and sums of 32 terms or more"
)


@dataclass(frozen=True)
class QuantizedLayers:
    """The layers of a model and what became of them, and warnings for the user."""

    layers: tuple[LayerNumbers, ...] = ()
    warnings: tuple[str, ...] = ()


def quantize(model: ir.Model, options: CompileOptions, passes: PassContext) -> QuantizedLayers:
    """Quantise the layers of `model`, a simple graph, in place."""
    chosen = QUANTIZED.get(options.precision)
    if chosen is None:
        return QuantizedLayers()
    passes.run(model, (_step(chosen, options), EliminateDeadCode()))
    layers = tuple(rows_of(model))
    return QuantizedLayers(layers, () if layers else (_NOTHING.format(options.precision),))


def _step(chosen: Quantized, options: CompileOptions) -> Pass:
    """Return the pass that quantises layers."""
    if chosen.weights_only:
        return QuantizeWeights(chosen.bits, options.weight_block or DEFAULT_BLOCK)
    return QuantizeProducts()
