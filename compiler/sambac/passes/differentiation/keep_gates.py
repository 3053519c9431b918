"""LSTMs and GRUs that keep what their backward pass reads: gates and what cell states are made of.

onnxruntime's kernels give out hidden states alone, and to compute the gates anew takes longer than
a kernel. Before differentiation layers get further outputs,

    y, h, c = LSTM(x, w, r, ..)  ->  y, h, c, i, o, f, g, .. = LSTM(x, w, r, ..)
    y, h = GRU(x, w, r, ..)      ->  y, h, z, r, n, q, .. = GRU(x, w, r, ..)

which their gradient rules read, in a formulation that their sizes choose. They exist between the
two passes alone: after differentiation, products for all steps and Scans stand for a layer whose
further outputs are read (see `recurrent_kept.py` in `ops/gradients`), and others are what they
were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.decisions import Decisions
from sambac.graph.editor import Editor
from sambac.graph.nodes import input_at, int_attribute, static_shape
from sambac.ops import undifferentiable
from sambac.ops.gradients.recurrent import OUTPUTS, STYLE
from sambac.ops.gradients.recurrent_layer import RECURRENT_LAYERS, keep, replace, sizes_of
from sambac.ops.gradients.rules import operand
from sambac.passes.rewriting import Rule, RulePass, used

_WIDE = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


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
    keep(editor, node, RECURRENT_LAYERS[node.op_type].choice(editor, sizes_of(node)).name)
    return None


def lower_kept_gates(editor: Editor, node: ir.Node) -> str | None:
    """LSTM or GRU that gives out gates -> products and Scans, or the layer as it was."""
    if STYLE not in node.attributes:
        return "it keeps nothing"
    first = OUTPUTS[node.op_type]
    if not used(node.outputs[first:]):
        node.resize_outputs(first)
        del node.attributes[STYLE]
        return None
    RECURRENT_LAYERS[node.op_type].choose(editor, sizes_of(node))  # remembered as it is written
    return replace(editor, node)


@dataclass(frozen=True)
class LayerPass(RulePass):
    """A pass over recurrent layers, in formulations as `decisions` say."""

    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {}
    decisions: Decisions = field(default_factory=Decisions)

    def editor(self, model: ir.Model) -> Editor:
        """Return what the rules edit with."""
        return Editor(model, decisions=self.decisions)


@dataclass(frozen=True)
class KeepGates(LayerPass):
    """Let recurrent layers give out what their gradient rules would compute anew."""

    name: ClassVar[str] = "keep_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GRU": (keep_gates,),
        "LSTM": (keep_gates,),
    }


@dataclass(frozen=True)
class LowerKeptGates(LayerPass):
    """Run layers that give out gates step by step, and let others be as they were."""

    name: ClassVar[str] = "lower_kept_gates"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        "GRU": (lower_kept_gates,),
        "LSTM": (lower_kept_gates,),
    }
