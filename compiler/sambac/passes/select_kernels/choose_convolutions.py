"""Convolutions in a training step, in the formulation that is chosen for their sizes.

    Conv(x, w)      ->  a product of filters and columns, of pairs of positions, ...
    Conv(x, w, b)   ->  the same + b
    ConvTranspose   ->  likewise, as the data gradient that it is

where filters are no constants and all sizes are known; see `gathering.py` and `spreading.py` in
`ops/gradients`. It runs behind differentiation, so that gradients are those of the convolution;
where these, parts of another operator, are transposed convolutions or such of volumes, that was
chosen already.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.decisions import Decisions
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import input_at, int_attribute, static_shape
from sambac.graph.origins import operator_of
from sambac.ops.gradients.convolution_sizes import Convolution, sizes_between
from sambac.ops.gradients.gathering import CONVOLUTION
from sambac.ops.gradients.rules import operand, reshape
from sambac.ops.gradients.spreading import DATA_GRADIENT
from sambac.ops.gradients.windows import window_of
from sambac.passes.base import Pass

_VOLUME = 5
"""The rank of volumes, which the gradients of filters may be written with."""

_POINTS = {"Conv": CONVOLUTION, "ConvTranspose": DATA_GRADIENT}


@dataclass(frozen=True)
class ChooseConvolutions(Pass):
    """Write convolutions as `decisions` say, or as the guess of costs does."""

    name: ClassVar[str] = "choose_convolutions"
    operators: ClassVar[frozenset[str]] = frozenset({"Conv", "ConvTranspose"})
    decisions: Decisions = field(default_factory=Decisions)

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the convolutions of the main graph."""
        editor = Editor(model, decisions=self.decisions)
        changed = [_rewritten(editor, node) for node in tuple(model.graph) if _is_asked(node)]
        return ir.passes.PassResult(model, modified=any(changed))


def _is_asked(node: ir.Node) -> bool:
    """Tell whether a node is a convolution of known sizes with filters that change."""
    part = operator_of(node) not in ("", str(node.name))
    volume = len(static_shape(node.outputs[0]) or ()) == _VOLUME
    chosen = part and (node.op_type == "ConvTranspose" or volume)
    if node.op_type not in _POINTS or node.domain != "" or chosen:
        return False
    x, filters = operand(node, 0), operand(node, 1)
    known = all(_is_plain(value) for value in (x, filters, node.outputs[0]))
    # Other types have kernels for some operators alone, which was seen to already.
    return known and filters.const_value is None and x.dtype == ir.DataType.FLOAT


def _is_plain(value: ir.Value) -> bool:
    shape = static_shape(value)
    return shape is not None and 0 not in shape


def _rewritten(b: Editor, node: ir.Node) -> bool:
    """Write one convolution as it is chosen; tell whether that changed it."""
    x, filters, out = operand(node, 0), operand(node, 1), node.outputs[0]
    transposed, group = node.op_type == "ConvTranspose", int_attribute(node, "group", 1)
    image, signal = (out, x) if transposed else (x, out)
    of = sizes_between(image, signal, window_of(node, transposed=transposed), group)
    b.rewrite(node)
    point = _POINTS[node.op_type]
    form = point.choose(b, of)
    if form is point.forms[-1]:
        return False  # the operator itself
    bias = input_at(node, 2)
    if bias is not None and form.takes_bias:
        made = point.write(b, form, of, (x, filters, bias))
    else:
        made = _with_bias(b, of, point.write(b, form, of, (x, filters)), bias)
    return b.bypass(node, made) is None


def _with_bias(b: Editor, of: Convolution, made: ir.Value, bias: ir.Value | None) -> ir.Value:
    if bias is None:
        return made
    (maps,) = shape_of(bias)
    return b.op("Add", made, reshape(b, bias, (1, maps, *(1 for _ in of.window.kernel))))
