"""Recurrent layers: the exporter unrolls plain ones, and loses the dropout between their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx_ir as ir
from onnxscript.function_libs.torch_lib.ops.core import aten_lstm

from .operators import op, several, sizes
from .randomness import dropped


def rnn(activation: str) -> Callable[..., tuple[ir.Value, ...]]:
    """Return the translation of layers h' = activation(W x + b + R h + c), `Tanh` or `Relu`."""

    def translate(
        x: ir.Value,
        hx: ir.Value,
        params: Sequence[ir.Value],
        has_biases: bool,
        num_layers: int,
        *settings: float,
    ) -> tuple[ir.Value, ...]:
        """Return all states of the last layer [T, N, D * H], and the last states [L * D, N, H].

        `settings` are the dropout between layers, whether it drops, whether there are D = 2
        directions, and whether x and the states of the last layer have T and N swapped.
        """
        dropout, train, bidirectional, batch_first = settings
        directions = 2 if bidirectional else 1
        tensors = (4 if has_biases else 2) * directions
        x = op.Transpose(x, perm=[1, 0, 2]) if batch_first else x
        last = []
        for layer in range(num_layers):
            if layer and dropout and train:
                x = dropped(x, dropout)
            start = op.Slice(hx, [layer * directions], [(layer + 1) * directions], [0])
            own = params[layer * tensors : (layer + 1) * tensors]
            attributes = {
                "activations": [activation] * directions,
                "direction": "bidirectional" if bidirectional else "forward",
                "hidden_size": sizes(hx, -1)[0],
            }
            x, state = _layer(x, start, _by_direction(own, directions), attributes)
            last.append(state)
        states = _joined(last)
        return op.Transpose(x, perm=[1, 0, 2]) if batch_first else x, states

    return translate


_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
"""Where the gates of ONNX's operators stand among PyTorch's (of an LSTM i, o, f, c; i, f, c, o)."""

_OWN: Mapping[str, Mapping[str, object]] = {
    "lstm": {},
    "gru": {"linear_before_reset": 1},
    "rnn_tanh": {"activations": ["Tanh"]},
    "rnn_relu": {"activations": ["Relu"]},
}
"""The attributes of each kind, for one direction."""


def steps_of_lengths(
    kind: str,
    x: ir.Value,
    lengths: ir.Value,
    starts: Sequence[ir.Value],
    params: Sequence[ir.Value],
    *settings: Any,
) -> list[ir.Value]:
    """Return the states of sequences of several lengths, and the last of each kind.

    `settings` are whether there are biases, how many layers, the dropout between them, whether it
    drops, and whether there are two directions. The last state is the one after the last step of
    each sequence.
    """
    has_biases, num_layers, dropout, train, bidirectional = settings
    if kind == "lstm" and sizes(starts[0], -1) != sizes(starts[1], -1):
        raise NotImplementedError("an LSTM with projections (proj_size) has no ONNX form")
    directions = 2 if bidirectional else 1
    tensors = (4 if has_biases else 2) * directions
    lengths = op.Cast(lengths, to=ir.DataType.INT32)
    attributes = {
        "direction": "bidirectional" if bidirectional else "forward",
        "hidden_size": sizes(starts[0], -1)[0],
        **_OWN[kind],
    }
    if "activations" in attributes:
        attributes["activations"] = [*_OWN[kind]["activations"]] * directions  # type: ignore[misc]
    last: list[Sequence[ir.Value]] = []
    for layer in range(num_layers):
        if layer and dropout and train:
            x = dropped(x, dropout)
        bounds = [layer * directions], [(layer + 1) * directions], [0]
        begin = [op.Slice(start, *bounds) for start in starts]
        own = params[layer * tensors : (layer + 1) * tensors]
        by_direction = [
            [_reordered(one, _GATES[kind]) for one in group]
            for group in _by_direction(own, directions)
        ]
        operands = (*_operands(by_direction), lengths, *begin)
        operator = getattr(several, "RNN" if kind.startswith("rnn") else kind.upper())
        states, *ends = operator(x, *operands, **attributes)
        x = op.Reshape(op.Transpose(states, perm=[0, 2, 1, 3]), [0, 0, -1])
        last.append(ends)
    return [x, *(_joined(ends) for ends in zip(*last, strict=True))]


def _reordered(weights: ir.Value, order: Sequence[int]) -> ir.Value:
    """Return the rows of weights, or of biases, with their gates in another order."""
    if len(order) == 1:
        return weights
    gates = several.Split(weights, axis=0, num_outputs=len(order))
    return op.Concat(*(gates[place] for place in order), axis=0)


def _operands(
    params: Sequence[Sequence[ir.Value]],
) -> tuple[ir.Value, ir.Value, ir.Value | None]:
    """Return the weights, the recurrences and the biases of all directions."""
    weight, recurrence = (_stacked([own[index] for own in params]) for index in (0, 1))
    if len(params[0]) == 2:
        return weight, recurrence, None
    return weight, recurrence, _stacked([op.Concat(own[2], own[3], axis=0) for own in params])


def _joined(values: Sequence[ir.Value]) -> ir.Value:
    return op.Concat(*values, axis=0) if len(values) > 1 else values[0]


def _by_direction(params: Sequence[ir.Value], directions: int) -> list[Sequence[ir.Value]]:
    count = len(params) // directions
    return [params[index : index + count] for index in range(0, len(params), count)]


def _layer(
    x: ir.Value,
    start: ir.Value,
    params: Sequence[Sequence[ir.Value]],
    attributes: Mapping[str, object],
) -> tuple[ir.Value, ir.Value]:
    """Return the states [T, N, D * H] of one layer, and the last [D, N, H]."""
    states, last = several.RNN(x, *_operands(params), None, start, **attributes)
    return op.Reshape(op.Transpose(states, perm=[0, 2, 1, 3]), [0, 0, -1]), last


def _stacked(values: Sequence[ir.Value]) -> ir.Value:
    return _joined([op.Unsqueeze(value, [0]) for value in values])


def lstm(
    x: ir.Value,
    hx: Sequence[ir.Value],
    params: Sequence[ir.Value],
    *settings: object,
) -> tuple[ir.Value, ...]:
    """The exporter's own translation, which would mistake the weights of projections."""
    if sizes(hx[0], -1) != sizes(hx[1], -1):
        raise NotImplementedError("an LSTM with projections (proj_size) has no ONNX form")
    result: tuple[ir.Value, ...] = aten_lstm(x, hx, params, *settings)
    return result
