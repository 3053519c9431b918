"""Recurrent layers: two matrix products per gate and time step."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.node_facts import input_at

from .family import Family, dim, each, elements


def _recurrent(node: ir.Node) -> int:
    """2 * steps * batch * weights: every weight of W and R is used once a step."""
    sequence = input_at(node, 0)
    steps = dim(sequence, 0) * dim(sequence, 1)
    return 2 * steps * (elements(input_at(node, 1)) + elements(input_at(node, 2)))


FAMILY = Family(
    "recurrent",
    {
        **each("GRU LSTM RNN", _recurrent),
        **each("DynamicQuantizeLSTM AttnLSTM", _recurrent, "com.microsoft"),
    },
    anchor=True,
)
