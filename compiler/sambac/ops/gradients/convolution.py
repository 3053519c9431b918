"""Gradients of convolutions, of one to three dimensions.

A convolution y[o] = sum over taps t and channels of W[t] * x[at(o, t)] has three: the data gradient
spreads dy over the taps, the filter gradient is a product of dy with what each tap sees
(`filters.py`), the bias gradient is a sum. A transposed
convolution is a data gradient itself, so that image and result change roles.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import int_attribute
from sambac.ops.family import InputGradient

from .convolution_sizes import Convolution
from .filters import filter_gradient
from .rules import channel_sums, dtype_of, incoming, operand
from .spreading import DATA_GRADIENT
from .windows import Window, window_of


def conv(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x * W + B: dx = dy spread by W over the windows, dW = dy columns(x)^T, dB = sum dy."""
    x, weight, dy = operand(node, 0), operand(node, 1), incoming(node, grads)
    window, group = window_of(node), int_attribute(node, "group", 1)
    return (
        lambda: _spread(b, dy, weight, window, group),
        lambda: filter_gradient(b, x, dy, window, group),
        lambda: channel_sums(b, dy),
    )[: len(node.inputs)]


def conv_transpose(
    b: Editor, node: ir.Node, grads: Sequence[ir.Value | None]
) -> Sequence[InputGradient | None]:
    """y = x spread by W + B: dx = dy * W (a convolution), dW = x columns(dy)^T, dB = sum dy."""
    x, weight, dy = operand(node, 0), operand(node, 1), incoming(node, grads)
    window, group = window_of(node, transposed=True), int_attribute(node, "group", 1)
    return (
        lambda: _gathered(b, dy, weight, window, group),
        lambda: filter_gradient(b, dy, x, window, group),
        lambda: channel_sums(b, dy),
    )[: len(node.inputs)]


def _gathered(b: Editor, dy: ir.Value, weight: ir.Value, window: Window, group: int) -> ir.Value:
    """Return the convolution of `dy` with the filters of the node."""
    return b.op(
        "Conv",
        dy,
        weight,
        **window.attributes,
        group=group,
    )


def _spread(b: Editor, dy: ir.Value, weight: ir.Value, window: Window, group: int) -> ir.Value:
    """Return dx [N, C, *image] from dy [N, O, *positions] and W [O, C / group, *kernel]."""
    (batch, maps), channels = shape_of(dy)[:2], shape_of(weight)[1] * group
    asked = Convolution(batch, channels, maps, window, group, dtype_of(dy))
    return DATA_GRADIENT.solve(b, asked, dy, weight)
