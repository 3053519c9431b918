"""Gradients of onnxruntime's normalisations of a sum s = input + skip + bias.

What reaches s, through the normalised result or through output 3, which is s, goes on to all of
its terms alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import onnx_ir as ir

from pef.text import shape_text
from sambac.errors import CompileError
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import float_attribute, input_at
from sambac.ops.family import InputGradient

from .normalization import NormalizedRows
from .rules import flatten, operand
from .statistics import centre, reciprocal_size

_EPSILON = 1e-12
_SUM_OUTPUT = 3

Gradients = Sequence[InputGradient | None]


def skip_layer_normalization(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Gradients:
    """y = scale c r + beta of rows of s: ds as of LayerNormalization; 3 and 4 are beta and bias."""
    rows = _rows(b, node, grads[0], bias=4, centred=True)
    whole = _shared(b, grads, rows)
    beta = input_at(node, 3)
    if rows is None:
        return (whole, whole, None, None, whole)[: len(node.inputs)]
    shift = None if beta is None else lambda: rows.biases(beta)
    return (whole, whole, rows.scales, shift, whole)[: len(node.inputs)]


def skip_simplified_layer_normalization(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Gradients:
    """y = scale s r of rows of s: ds as of RMSNormalization; input 3: bias."""
    rows = _rows(b, node, grads[0], bias=3, centred=False)
    whole = _shared(b, grads, rows)
    scales = None if rows is None else rows.scales
    return (whole, whole, scales, whole)[: len(node.inputs)]


def _rows(
    b: Editor, node: ir.Node, dy: ir.Value | None, *, bias: int, centred: bool
) -> NormalizedRows | None:
    """Return the normalised rows of the sum, None if nothing depends on them.

    Raises `CompileError` for a skip that does not fit: onnxruntime compares them when it runs.
    """
    if dy is None:
        return None
    shape, skip = shape_of(operand(node, 0)), shape_of(operand(node, 1))
    if skip != shape[len(shape) - len(skip) :] and skip != (1, *shape[1:]):
        raise CompileError(
            f"{node.op_type} '{node.name}' adds a skip of {shape_text(skip)} to an input of "
            f"{shape_text(shape)}; the same shape was expected; correct the model"
        )
    total = b.op("Add", operand(node, 0), operand(node, 1))
    last = input_at(node, bias)
    if last is not None:
        total = b.op("Add", total, last)
    flat = flatten(b, total, -1)
    c = centre(b, flat) if centred else flat
    deviation = reciprocal_size(b, c, float_attribute(node, "epsilon", _EPSILON))
    return NormalizedRows(b, c, deviation, dy, operand(node, 2), centred)


def _shared(
    b: Editor, grads: Sequence[ir.Value | None], rows: NormalizedRows | None
) -> InputGradient:
    """Return the maker of ds, which makes it once."""
    direct = grads[_SUM_OUTPUT] if len(grads) > _SUM_OUTPUT else None

    @cache
    def make() -> ir.Value:
        parts = [direct] if rows is None else [rows.data(), direct]
        first, *more = [part for part in parts if part is not None]
        return b.op("Add", first, *more) if more else first

    return make
