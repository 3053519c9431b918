"""Recurrent layers: the exporter unrolls plain ones, and loses the dropout between their layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
        states = op.Concat(*last, axis=0) if len(last) > 1 else last[0]
        return op.Transpose(x, perm=[1, 0, 2]) if batch_first else x, states

    return translate


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
    weight, recurrence = (_stacked([own[index] for own in params]) for index in (0, 1))
    bias = None
    if len(params[0]) > 2:
        bias = _stacked([op.Concat(own[2], own[3], axis=0) for own in params])
    states, last = several.RNN(x, weight, recurrence, bias, None, start, **attributes)
    return op.Reshape(op.Transpose(states, perm=[0, 2, 1, 3]), [0, 0, -1]), last


def _stacked(values: Sequence[ir.Value]) -> ir.Value:
    parts = [op.Unsqueeze(value, [0]) for value in values]
    return op.Concat(*parts, axis=0) if len(parts) > 1 else parts[0]


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
