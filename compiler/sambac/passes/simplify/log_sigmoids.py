"""Logarithms of sigmoids, without the sigmoids.

    Log(Sigmoid(x))              ->  -Softplus(-x)                         x in float32
    Log(Add(Sigmoid(x), small))  ->  Log(Add(Exp(-Softplus(-x)), small))   so Clip, Max with `small`

onnxruntime's kernel gives sigmoids that are up to 8e-8 off, whatever they are: below -18 they are
0, and their logarithms infinite, with gradients that are no numbers, where PyTorch's go down to
-87. The losses of probabilities take such logarithms, and many keep them finite by a small number,
as 1e-8, which what is off would drown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.passes.rewriting import Rule, RulePass, constant, made_by

_SMALL = 1e-2
"""A number from which on what the kernel's sigmoids are off does not count beside it."""


def log_sigmoid(editor: Editor, node: ir.Node) -> str | None:
    """Log(Sigmoid(x)) -> -Softplus(-x)."""
    sigmoid = made_by(node.inputs[0], "Sigmoid")
    if sigmoid is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return "it is no logarithm of a sigmoid in float32"
    (x,) = sigmoid.inputs
    editor.replace(node, "Neg", editor.op("Softplus", editor.op("Neg", x, like=x), like=x))
    return None


def log_of_more(editor: Editor, node: ir.Node) -> str | None:
    """Log(Add(Sigmoid(x), small)) -> Log(Add(Exp(-Softplus(-x)), small)); so Clip and Max."""
    more = made_by(node.inputs[0], "Add", "Clip", "Max")
    if more is None or node.outputs[0].dtype != ir.DataType.FLOAT:
        return "nothing keeps what it reads from 0"
    least = more.inputs[1] if more.op_type == "Clip" and len(more.inputs) > 1 else None
    others = [least] if least else [each for each in more.inputs if not made_by(each, "Sigmoid")]
    numbers = [constant(each) for each in others]
    if len(numbers) != 1 or numbers[0] is None or not (np.abs(numbers[0]) < _SMALL).all():
        return "what keeps it from 0 is no small constant"
    for at, read in enumerate(more.inputs):
        sigmoid = made_by(read, "Sigmoid")
        if sigmoid is not None:
            (x,) = sigmoid.inputs
            editor.go_before(more)
            softplus = editor.op("Softplus", editor.op("Neg", x, like=x), like=x)
            exact = editor.op("Exp", editor.op("Neg", softplus, like=x), like=x)
            more.replace_input_with(at, exact)
            return None
    return "it keeps no sigmoid from 0"


@dataclass(frozen=True)
class LogSigmoids(RulePass):
    """Compute logarithms of sigmoids where sigmoids are 0, or nearly so."""

    name: ClassVar[str] = "log_sigmoids"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Sigmoid"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Log": (log_sigmoid, log_of_more)}
