"""Logarithms of sigmoids, without the sigmoids.

    Log(Sigmoid(x))  ->  -Softplus(-x)    x in float32

onnxruntime's kernel gives sigmoids that are up to 8e-8 off, whatever they are: below -18 they are
0, and their logarithms infinite, with gradients that are no numbers, where PyTorch's go down to
-87. The losses of probabilities take such logarithms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor

from .rewriting import Rule, RulePass, made_by


def log_sigmoid(editor: Editor, node: ir.Node) -> str | None:
    """Log(Sigmoid(x)) -> -Softplus(-x)."""
    sigmoid = made_by(node.inputs[0], "Sigmoid")
    if sigmoid is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return "it is no logarithm of a sigmoid in float32"
    (x,) = sigmoid.inputs
    editor.replace(node, "Neg", editor.op("Softplus", editor.op("Neg", x, like=x), like=x))
    return None


@dataclass(frozen=True)
class LogSigmoids(RulePass):
    """Compute logarithms of sigmoids where sigmoids are 0."""

    name: ClassVar[str] = "log_sigmoids"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Sigmoid"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Log": (log_sigmoid,)}
