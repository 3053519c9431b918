"""GELU from the error function that its own gradient needs.

    Gelu(x)   ->  x * p     where p = HardSigmoid(Erf(x * sqrt(1/2)), alpha=1/2, beta=1/2)

if p, the probability (1 + erf(x / sqrt(2))) / 2, is in the graph: the gradient of GELU by the error
function reads it. The error function is the dearest part of both, and is then taken once: 0.8 of
the time of GELU and its gradient. In exchange p is kept for the backward pass, beside x.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isclose, sqrt
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, redirect

from .rewriting import Rule, RulePass, scalar

_HALF = 0.5
_ROOT = sqrt(0.5)


def share(editor: Editor, node: ir.Node) -> str | None:
    """Gelu(x) -> x * p, where p is read elsewhere."""
    x = node.inputs[0]
    approximate = node.attributes.get("approximate")
    if approximate is not None and approximate.as_string() != "none":
        return "it does not use the error function"
    found = None if x is None else _probability(x)
    if x is None or found is None:
        return "nothing else takes the error function"
    root, probability = found
    scaled = editor.op("Mul", x, root, like=x)
    area = editor.op("Erf", scaled, like=x)
    shared = editor.op("HardSigmoid", area, like=x, alpha=_HALF, beta=_HALF)
    editor.replace(node, "Mul", x, shared)
    return redirect(probability, shared)


def _probability(x: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """Return sqrt(1/2) and p, if they are in the graph of `x`."""
    for scaling in _readers(x, "Mul"):
        root = next((value for value in scaling.inputs if value is not x), None)
        number = scalar(root)
        if root is None or number is None or not isclose(number, _ROOT, rel_tol=1e-6):
            continue
        for area in _readers(scaling.outputs[0], "Erf"):
            for node in _readers(area.outputs[0], "HardSigmoid"):
                p = node.outputs[0]
                halves = all(float_attribute(node, key, 0) == _HALF for key in ("alpha", "beta"))
                if halves and not p.is_graph_output():
                    return root, p
    return None


def _readers(value: ir.Value, op_type: str) -> list[ir.Node]:
    """Return the readers of `value` that are the ONNX operator `op_type`."""
    return [node for node in value.consumers() if (node.domain, node.op_type) == ("", op_type)]


@dataclass(frozen=True)
class ShareErrorFunctions(RulePass):
    """Take the error function of a GELU and of its gradient once."""

    name: ClassVar[str] = "share_error_functions"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Gelu": (share,)}
