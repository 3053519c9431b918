"""LSTMs that keep what their backward pass reads: gates and cell states.

onnxruntime's kernel gives out hidden states alone, and to compute the gates anew takes longer than
the kernel. Before differentiation an LSTM gets further outputs, five for each direction,

    y, h, c = LSTM(x, w, r, ..)  ->  y, h, c, i, o, f, g, cells, .. = LSTM(x, w, r, ..)

which its gradient rule reads. They exist between the two passes alone: after differentiation, a
product for all steps and a Scan stand for an LSTM whose further outputs are read,

    z = x W^T + b
    Scan: i, o, f, g = z + h' R^T behind Sigmoid, Tanh for g;  c = f c' + i g;  h = o Tanh(c)

where ' marks the step before, and others are what they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.control_flow import Values, scan
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, redirect, static_shape, text_attribute
from sambac.ops import undifferentiable
from sambac.ops.gradients.recurrent import FIRST_KEPT, KEPT, part
from sambac.ops.gradients.recurrent_cell import concat, product
from sambac.ops.gradients.rules import operand, zeros

from .rewriting import Rule, RulePass, used

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


def keep_gates(editor: Editor, node: ir.Node) -> str | None:
    """LSTM -> LSTM that gives out its gates and cell states, too.

    Not in 16 bits, where the kernel is exact from step to step and operators would round.
    """
    x = operand(node, 0)
    shape, weights = static_shape(x), static_shape(operand(node, 2))
    if x.dtype not in _WIDE or shape is None or weights is None or 0 in (*shape, *weights):
        return "its numbers are short, or its sizes unknown or 0"
    if input_at(node, 4) is not None or input_at(node, 7) is not None:
        return "its sequences have lengths, or its gates read the cell state"
    if reason := undifferentiable(node):
        return reason
    stem = editor.add_output(node, 0).name
    node.resize_outputs(FIRST_KEPT + weights[0] * len(KEPT))
    for absent in node.outputs[1:FIRST_KEPT]:
        absent.name = absent.name or ""
    for index, value in enumerate(node.outputs[FIRST_KEPT:]):
        value.name = editor.names.value(f"{stem}_{KEPT[index % len(KEPT)]}")
        value.type = x.type
        value.shape = ir.Shape((*shape[:2], weights[2]))
    return None


def lower_kept_gates(editor: Editor, node: ir.Node) -> str | None:
    """LSTM that gives out gates -> a product and a Scan, or an LSTM as it was."""
    if len(node.outputs) <= FIRST_KEPT:
        return "it keeps nothing"
    if not used(node.outputs[FIRST_KEPT:]):
        node.resize_outputs(FIRST_KEPT)
        return None
    reverse = text_attribute(node, "direction", "forward") == "reverse"
    count = (len(node.outputs) - FIRST_KEPT) // len(KEPT)
    made = [_direction(editor, node, d, backwards=reverse or d == 1) for d in range(count)]
    results = [
        _joined(editor, [one.y for one in made], 1),
        _joined(editor, [one.h for one in made], 0),
        _joined(editor, [one.c for one in made], 0),
        *(value for one in made for value in one.kept),
    ]
    for old, new in zip(node.outputs, results, strict=True):
        if old.name and (reason := redirect(old, new)):
            return reason
    editor.remove(node)
    return None


@dataclass(frozen=True)
class _Direction:
    """What one direction gives: hidden states, the last ones of both kinds, and what is kept."""

    y: ir.Value
    h: ir.Value
    c: ir.Value
    kept: Values


def _direction(b: Editor, node: ir.Node, number: int, *, backwards: bool) -> _Direction:
    """Run direction `number` of an LSTM step by step."""
    r = part(b, operand(node, 2), number)
    bias = input_at(node, 3)
    if bias is not None:
        of_x, of_h = b.ops("Split", part(b, bias, number), outputs=2, axis=0, num_outputs=2)
        bias = b.op("Add", of_x, of_h)
    from_x = product(b, operand(node, 0), part(b, operand(node, 1), number), bias)

    def step(b: Editor, states: Values, at: Values) -> tuple[Values, Values]:
        z = b.op("Gemm", states[0], r, at[0], transB=1)
        zi, zo, zf, zg = b.ops("Split", z, outputs=4, axis=1, num_outputs=4)
        i, o, f = (b.op("Sigmoid", gate) for gate in (zi, zo, zf))
        g = b.op("Tanh", zg)
        c = b.op("Add", b.op("Mul", f, states[1]), b.op("Mul", i, g))
        h = b.op("Mul", o, b.op("Tanh", c))
        return [h, c], [b.op("Identity", h), i, o, f, g, b.op("Identity", c)]

    states = [_state(b, node, index, number) for index in (5, 6)]
    (h, c), (y, *kept) = scan(b, step, states, [from_x], backwards=backwards)
    return _Direction(y, h, c, kept)


def _state(b: Editor, node: ir.Node, index: int, number: int) -> ir.Value:
    """Return the state that direction `number` begins with, `[batch, hidden]`."""
    given = input_at(node, index)
    if given is not None:
        return part(b, given, number)
    kept = node.outputs[FIRST_KEPT]
    return zeros(b, kept.dtype, (static_shape(kept) or ())[1:])


def _joined(b: Editor, parts: Sequence[ir.Value], axis: int) -> ir.Value:
    """Return what the directions give, along a new axis."""
    return concat(b, [b.op("Unsqueeze", value, [axis]) for value in parts], axis)


@dataclass(frozen=True)
class KeepGates(RulePass):
    """Let LSTMs give out what their gradient rule would compute anew."""

    name: ClassVar[str] = "keep_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"LSTM": (keep_gates,)}


@dataclass(frozen=True)
class LowerKeptGates(RulePass):
    """Run LSTMs that give out gates step by step, and let others be as they were."""

    name: ClassVar[str] = "lower_kept_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"LSTM": (lower_kept_gates,)}
