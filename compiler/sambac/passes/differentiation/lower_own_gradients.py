"""Remove what tells the gradients of parts that bring their own, once gradients are made.

    OwnGradient(y, d, x, dx)  ->  y
    IncomingGradient(y)       ->  y

What computed dx from d is dead then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import supersede
from sambac.graph.own_gradients import DOMAIN, INCOMING, OWN, OwnGradient
from sambac.passes.rewriting import Rule, RulePass


def lower_own_gradient(editor: Editor, node: ir.Node) -> str | None:
    """Let readers of the outputs read what they are."""
    for output, result in zip(node.outputs, OwnGradient.of(node).results, strict=True):
        supersede(output, editor.op("Identity", result, like=output))
    editor.remove(node)
    return None


def lower_incoming_gradient(editor: Editor, node: ir.Node) -> str | None:
    """Put something of its shape in the place of what nothing reads that lives."""
    editor.replace(node, "Identity", node.inputs[0])
    return None


class LowerOwnGradients(RulePass):
    """Write Identities for operators that bring their own gradients."""

    name: ClassVar[str] = "lower_own_gradients"
    domain: ClassVar[str] = DOMAIN
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {
        OWN: (lower_own_gradient,),
        INCOMING: (lower_incoming_gradient,),
    }

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Lower all of them; no operator of their domain is left."""
        result = super().call(model)
        model.opset_imports.pop(DOMAIN, None)
        return result
