"""LSTMs and GRUs that keep what their backward pass reads: gates and cell states.

onnxruntime's kernels give out hidden states alone, and to compute the gates anew takes longer than
a kernel. Before differentiation layers get further outputs, some for each direction,

    y, h, c = LSTM(x, w, r, ..)  ->  y, h, c, i, o, f, g, cells, .. = LSTM(x, w, r, ..)
    y, h = GRU(x, w, r, ..)      ->  y, h, z, r, n, q, ..           = GRU(x, w, r, ..)

which their gradient rules read. They exist between the two passes alone: after differentiation, a
product for all steps and a Scan stand for a layer whose further outputs are read,

    LSTM: u = x W^T + b;   i, o, f, g = u + h' R^T behind Sigmoid, Tanh for g
          c = f c' + i g;  h = o Tanh(c)
    GRU:  u = x W^T + b;   q = h' Rn^T + bn
          z, r = Sigmoid(u + h' R^T + b);  n = Tanh(u + r q);  h = n + z (h' - n)

where ' marks the step before, and others are what they were.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from sambac.graph.control_flow import Step, Values, scan
from sambac.graph.editor import Editor, shape_of
from sambac.graph.nodes import (
    input_at,
    int_attribute,
    redirect,
    static_shape,
    text_attribute,
)
from sambac.ops import undifferentiable
from sambac.ops.gradients.recurrent import KEPT, OUTPUTS, part
from sambac.ops.gradients.recurrent_cell import concat, product
from sambac.ops.gradients.rules import operand, zeros

from .rewriting import Rule, RulePass, used

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
_STATES: Mapping[str, tuple[int, ...]] = MappingProxyType({"GRU": (5,), "LSTM": (5, 6)})
"""Which inputs are the states that a layer begins with."""


def keep_gates(editor: Editor, node: ir.Node) -> str | None:
    """LSTM or GRU -> one that gives out its gates and cell states, too.

    Not in 16 bits, where the kernel is exact from step to step and operators would round.
    """
    x = operand(node, 0)
    shape, weights = static_shape(x), static_shape(operand(node, 2))
    if x.dtype not in _WIDE or shape is None or weights is None or 0 in (*shape, *weights):
        return "its numbers are short, or its sizes unknown or 0"
    if input_at(node, 4) is not None or input_at(node, 7) is not None:
        return "its sequences have lengths, or its gates read the cell state"
    if node.op_type == "GRU" and int_attribute(node, "linear_before_reset") == 0:
        return "its reset gate acts before a product"
    if reason := undifferentiable(node):
        return reason
    stem = editor.add_output(node, 0).name
    first, kept = OUTPUTS[node.op_type], KEPT[node.op_type]
    node.resize_outputs(first + weights[0] * len(kept))
    for absent in node.outputs[1:first]:
        absent.name = absent.name or ""
    for index, value in enumerate(node.outputs[first:]):
        value.name = editor.names.value(f"{stem}_{kept[index % len(kept)]}")
        value.type = x.type
        value.shape = ir.Shape((*shape[:2], weights[2]))
    return None


def lower_kept_gates(editor: Editor, node: ir.Node) -> str | None:
    """LSTM or GRU that gives out gates -> a product and a Scan, or the layer as it was."""
    first = OUTPUTS[node.op_type]
    if len(node.outputs) <= first:
        return "it keeps nothing"
    if not used(node.outputs[first:]):
        node.resize_outputs(first)
        return None
    reverse = text_attribute(node, "direction", "forward") == "reverse"
    count = shape_of(operand(node, 2))[0]
    made = [_direction(editor, node, d, backwards=reverse or d == 1) for d in range(count)]
    results = [
        _joined(editor, [one.y for one in made], 1),
        *(_joined(editor, states, 0) for states in zip(*(one.last for one in made), strict=True)),
        *(value for one in made for value in one.kept),
    ]
    for old, new in zip(node.outputs, results, strict=True):
        if old.name and (reason := redirect(old, new)):
            return reason
    editor.remove(node)
    return None


@dataclass(frozen=True)
class _Direction:
    """What one direction gives: hidden states, the last states, and what is kept."""

    y: ir.Value
    last: Values
    kept: Values


@dataclass(frozen=True)
class _Weights:
    """The weights of one direction; biases may be absent."""

    w: ir.Value
    r: ir.Value
    wb: ir.Value | None
    rb: ir.Value | None


# From the weights and X to what is known of all steps beforehand, and what a step is.
_Cell: TypeAlias = Callable[[Editor, ir.Value, _Weights], tuple[ir.Value, Step]]


def _lstm(b: Editor, x: ir.Value, weights: _Weights) -> tuple[ir.Value, Step]:
    bias = weights.wb
    if bias is not None:
        bias = b.op("Add", bias, weights.rb)

    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        z = b.op("Gemm", states[0], weights.r, at[0], transB=1)
        zi, zo, zf, zg = b.ops("Split", z, outputs=4, axis=1, num_outputs=4)
        i, o, f = (b.op("Sigmoid", gate) for gate in (zi, zo, zf))
        g = b.op("Tanh", zg)
        c = b.op("Add", b.op("Mul", f, states[1]), b.op("Mul", i, g))
        h = b.op("Mul", o, b.op("Tanh", c))
        return [h, c], [b.op("Identity", h), i, o, f, g, b.op("Identity", c)]

    return product(b, x, weights.w, bias), step


def _gru(b: Editor, x: ir.Value, weights: _Weights) -> tuple[ir.Value, Step]:
    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        from_h = b.op("Gemm", states[0], weights.r, weights.rb, transB=1)
        # Thirds: sizes from outside of the body would leave the shapes in it unknown.
        h_z, h_r, q = b.ops("Split", from_h, outputs=3, axis=1, num_outputs=3)
        x_z, x_r, x_n = b.ops("Split", at[0], outputs=3, axis=1, num_outputs=3)
        z = b.op("Sigmoid", b.op("Add", x_z, h_z))
        r = b.op("Sigmoid", b.op("Add", x_r, h_r))
        n = b.op("Tanh", b.op("Add", x_n, b.op("Mul", r, q)))
        h = b.op("Add", n, b.op("Mul", z, b.op("Sub", states[0], n)))
        return [h], [b.op("Identity", h), z, r, n, q]

    return product(b, x, weights.w, weights.wb), step


_CELLS: Mapping[str, _Cell] = MappingProxyType({"GRU": _gru, "LSTM": _lstm})


def _direction(b: Editor, node: ir.Node, number: int, *, backwards: bool) -> _Direction:
    """Run direction `number` of a layer step by step."""
    wb = rb = None
    bias = input_at(node, 3)
    if bias is not None:
        wb, rb = b.ops("Split", part(b, bias, number), outputs=2, axis=0, num_outputs=2)
    w, r = (part(b, operand(node, index), number) for index in (1, 2))
    x = operand(node, 0)
    from_x, step = _CELLS[node.op_type](b, x, _Weights(w, r, wb, rb))
    shape = (shape_of(x)[1], shape_of(r)[1])
    states = [_state(b, input_at(node, i), number, x, shape) for i in _STATES[node.op_type]]
    last, (y, *kept) = scan(b, step, states, [from_x], backwards=backwards)
    return _Direction(y, last, kept)


def _state(
    b: Editor, given: ir.Value | None, number: int, x: ir.Value, shape: tuple[int, int]
) -> ir.Value:
    """Return the state that direction `number` begins with, zeros where it is absent."""
    return zeros(b, x.dtype, shape) if given is None else part(b, given, number)


def _joined(b: Editor, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return what the directions give, along a new axis."""
    return concat(b, [b.op("Unsqueeze", value, [axis]) for value in parts], axis)


@dataclass(frozen=True)
class KeepGates(RulePass):
    """Let recurrent layers give out what their gradient rules would compute anew."""

    name: ClassVar[str] = "keep_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GRU": (keep_gates,),
        "LSTM": (keep_gates,),
    }


@dataclass(frozen=True)
class LowerKeptGates(RulePass):
    """Run layers that give out gates step by step, and let others be as they were."""

    name: ClassVar[str] = "lower_kept_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GRU": (lower_kept_gates,),
        "LSTM": (lower_kept_gates,),
    }
