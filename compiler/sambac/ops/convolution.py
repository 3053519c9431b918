"""Convolutions: every output element is a dot product over a filter."""

from __future__ import annotations

from math import prod

import onnx_ir as ir

from sambac.graph.nodes import input_at, modelled_shape

from .family import QUANTIZED, Family, FlopRule, each, elements
from .gradients.convolution import conv, conv_transpose
from .gradients.deformed import deform_conv
from .gradients.windows import no_transposed_windows


def _forward(weight: int) -> FlopRule:
    """2 * outputs * (channels / group * kernel); the filter `[M, C/group, *kernel]` has both."""

    def rule(node: ir.Node) -> int:
        filters = modelled_shape(input_at(node, weight))
        return 2 * elements(node.outputs[0]) * prod(filters[1:]) if filters else 0

    return rule


def _transposed(node: ir.Node) -> int:
    """2 * inputs * (maps / group * kernel): each input element is spread over a filter."""
    filters = modelled_shape(input_at(node, 1))
    return 2 * elements(input_at(node, 0)) * prod(filters[1:]) if filters else 0


def _words(node: ir.Node) -> int:
    """2 * words * filters: each word's characters are convolved with every filter of `W`."""
    sequence = modelled_shape(input_at(node, 0))
    return 2 * prod(sequence) * elements(input_at(node, 1)) if sequence else 0


FAMILY = Family(
    "convolution",
    {
        **each("Conv ConvInteger DeformConv CausalConvWithState", _forward(1)),
        **each("QLinearConv", _forward(3)),
        **each("ConvTranspose", _transposed),
        **each("FusedConv CausalConvWithState", _forward(1), "com.microsoft"),
        **each("QLinearConv", _forward(3), "com.microsoft"),
        **each("ConvTransposeWithDynamicPads", _transposed, "com.microsoft"),
        **each("WordConvEmbedding", _words, "com.microsoft"),
        **each("Conv", _forward(1), "com.microsoft.nchwc"),
    },
    anchor=True,
    second={"QLinearConv": 3, "com.microsoft.QLinearConv": 3},
    gradients={"Conv": conv, "ConvTranspose": conv_transpose, "DeformConv": deform_conv},
    constant=frozenset({"ConvInteger"}),
    undifferentiable={
        "CausalConvWithState": "it is younger than the operator set of training",
        "ConvTranspose": no_transposed_windows,
        "QLinearConv": QUANTIZED,
    },
)
