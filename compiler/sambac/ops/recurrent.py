"""Recurrent layers: two matrix products per gate and time step."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from sambac.graph.nodes import input_at, int_attribute, text_attribute

from .family import Family, dim, each, elements
from .gradients.recurrent import Cell, recurrent_rule
from .gradients.recurrent_cell import SLOPES, rnn
from .gradients.recurrent_gru import gru_reset_after, gru_reset_before
from .gradients.recurrent_lstm import lstm


def _recurrent(node: ir.Node) -> int:
    """2 * steps * batch * weights: every weight of W and R is used once a step."""
    sequence = input_at(node, 0)
    steps = dim(sequence, 0) * dim(sequence, 1)
    return 2 * steps * (elements(input_at(node, 1)) + elements(input_at(node, 2)))


def _directions(node: ir.Node) -> int:
    return 2 if text_attribute(node, "direction", "forward") == "bidirectional" else 1


def _activations(node: ir.Node, default: Sequence[str]) -> list[str]:
    """Return the activations of all directions, in small letters."""
    given = node.attributes.get("activations")
    names = given.as_strings() if given is not None else [*default] * _directions(node)
    return [name.casefold() for name in names]


_DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}


def _lstm_cells(node: ir.Node) -> list[Cell]:
    return [lstm] * _directions(node)


def _gru_cells(node: ir.Node) -> list[Cell]:
    after = int_attribute(node, "linear_before_reset") != 0
    return [gru_reset_after if after else gru_reset_before] * _directions(node)


def _rnn_cells(node: ir.Node) -> list[Cell]:
    return [rnn(name) for name in _activations(node, _DEFAULTS["RNN"])]


def _refusal(node: ir.Node) -> str | None:
    """Return what about a layer has no gradient here."""
    default = _DEFAULTS[node.op_type]
    used = _activations(node, default)
    known = (
        set(used) <= set(SLOPES)
        if node.op_type == "RNN"
        else (used == [*default] * _directions(node))
    )
    if not known:
        return f"it has a gradient with the activations {', '.join(default)}, not {', '.join(used)}"
    if "clip" in node.attributes:
        return "its gates are clipped"
    if int_attribute(node, "input_forget") != 0:
        return "its input and forget gates are coupled"
    if int_attribute(node, "layout") != 0:
        return "its batch comes before its steps (layout=1)"
    return None


FAMILY = Family(
    "recurrent",
    {
        **each("GRU LSTM RNN", _recurrent),
        **each("DynamicQuantizeLSTM AttnLSTM", _recurrent, "com.microsoft"),
    },
    anchor=True,
    gradients={
        "LSTM": recurrent_rule(_lstm_cells),
        "GRU": recurrent_rule(_gru_cells),
        "RNN": recurrent_rule(_rnn_cells),
    },
    undifferentiable={
        **dict.fromkeys(("LSTM", "GRU", "RNN"), _refusal),
        "com.microsoft.DynamicQuantizeLSTM": "its weights are integers",
        "com.microsoft.AttnLSTM": "its attention has no gradient rule",
    },
)
