"""What an activation and its gradient both compute, taken once.

GELU, from the error function that its own gradient needs:

    Gelu(x)   ->  x * p     where p = HardSigmoid(Erf(x * sqrt(1/2)), alpha=1/2, beta=1/2)

if p, the probability (1 + erf(x / sqrt(2))) / 2, is in the graph: the gradient of GELU by the error
function reads it. The error function is the dearest part of both, and is then taken once: 0.8 of
the time of GELU and its gradient. In exchange p is kept for the backward pass, beside x.

SiLU, x * sigmoid(x): its gradient from its result.

    dy * s + (dy * x) * s * (1 - s)   ->  (dy * s) * ((x - y) + 1)

where s = Sigmoid(x) and y = x * s are in the graph: what differentiation makes of SiLU, as
frontends write it in two operators. Of six passes over the memory four are left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isclose, sqrt
from typing import ClassVar

import numpy as np
import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import float_attribute, redirect, static_shape
from sambac.passes.rewriting import Rule, RulePass, has_one_reader, made_by, precedes, scalar

_HALF = 0.5
_ROOT = sqrt(0.5)


def share_error_function(editor: Editor, node: ir.Node) -> str | None:
    """Gelu(x) -> x * p, where p is read elsewhere."""
    x = node.inputs[0]
    approximate = node.attributes.get("approximate")
    if approximate is not None and approximate.as_string() != "none":
        return "it does not use the error function"
    found = None if x is None else _probability(x, node)
    if x is None or found is None:
        return "nothing behind it takes the error function"
    root, probability = found
    scaled = editor.op("Mul", x, root, like=x)
    area = editor.op("Erf", scaled, like=x)
    shared = editor.op("HardSigmoid", area, like=x, alpha=_HALF, beta=_HALF)
    editor.replace(node, "Mul", x, shared)
    return redirect(probability, shared)


def _probability(x: ir.Value, gelu: ir.Node) -> tuple[ir.Value, ir.Value] | None:
    """Return sqrt(1/2) and p, if they are in the graph of `gelu`, and behind it."""
    for scaling in _readers(x, "Mul"):
        root = next((value for value in scaling.inputs if value is not x), None)
        number = scalar(root)
        if root is None or number is None or not isclose(number, _ROOT, rel_tol=1e-6):
            continue
        for area in _readers(scaling.outputs[0], "Erf"):
            for node in _readers(area.outputs[0], "HardSigmoid"):
                p = node.outputs[0]
                halves = all(float_attribute(node, key, 0) == _HALF for key in ("alpha", "beta"))
                if halves and not p.is_graph_output() and precedes(gelu, node):
                    return root, p
    return None


def _readers(value: ir.Value, op_type: str) -> list[ir.Node]:
    """Return the readers of `value` that are the ONNX operator `op_type`."""
    return [node for node in value.consumers() if (node.domain, node.op_type) == ("", op_type)]


@dataclass(frozen=True)
class ShareErrorFunctions(RulePass):
    """Take the error function of a GELU and of its gradient once."""

    name: ClassVar[str] = "share_error_functions"
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Gelu": (share_error_function,)}


def share_sigmoid(editor: Editor, node: ir.Node) -> str | None:
    """Add of what comes back by both factors -> the gradient by the result."""
    out = node.outputs[0]
    for straight, bent in (node.inputs, tuple(reversed(node.inputs))):
        for dy, s in _factors(straight):
            x = _before_sigmoid(s)
            y = None if x is None else _product(x, s, node)
            if x is None or y is None or not _comes_by_sigmoid(bent, dy, x, s):
                continue
            if static_shape(x) is None or any(
                static_shape(value) != static_shape(out) for value in (x, dy)
            ):
                continue
            one = editor.constant(np.ones((), x.dtype.numpy()))  # type: ignore[union-attr]  # typed
            slope = editor.op("Add", editor.op("Sub", x, y, like=out), one, like=out)
            editor.replace(node, "Mul", editor.op("Mul", dy, s, like=out), slope)
            return None
    return "it does not sum up the gradients of x * sigmoid(x)"


def _comes_by_sigmoid(value: ir.Value | None, dy: ir.Value, x: ir.Value, s: ir.Value) -> bool:
    """Tell whether `value` is ((dy * x) * s) * (1 - s), which nothing else reads."""
    for weighted, falling in _factors(value):
        left = made_by(falling, "Sub")
        if left is None or scalar(left.inputs[0]) != 1 or left.inputs[1] is not s:
            continue
        inner = _other(weighted, s)
        if inner is not None and _other(inner, dy) is x:
            return True
    return False


def _factors(value: ir.Value | None) -> Iterator[tuple[ir.Value, ir.Value]]:
    """Yield the factors of a product that nothing else reads, in both orders."""
    node = made_by(value, "Mul")
    if node is None or value is None or not has_one_reader(value):
        return
    first, second = node.inputs
    if first is not None and second is not None:
        yield first, second
        yield second, first


def _other(product: ir.Value, factor: ir.Value) -> ir.Value | None:
    """Return by what `factor` is multiplied in `product`."""
    return next((other for one, other in _factors(product) if one is factor), None)


def _before_sigmoid(s: ir.Value) -> ir.Value | None:
    node = made_by(s, "Sigmoid")
    return None if node is None else node.inputs[0]


def _product(x: ir.Value, s: ir.Value, reader: ir.Node) -> ir.Value | None:
    """Return x * s where it is in the graph, before what is to read it."""
    for node in _readers(s, "Mul"):
        if set(node.inputs) == {x, s} and precedes(node, reader):
            return node.outputs[0]
    return None


@dataclass(frozen=True)
class ShareSigmoids(RulePass):
    """Take the gradient of x * sigmoid(x) from its result."""

    name: ClassVar[str] = "share_sigmoids"
    operators: ClassVar[frozenset[str] | None] = frozenset({"Sigmoid"})
    rules: ClassVar[Mapping[str, tuple[Rule, ...]]] = {"Add": (share_sigmoid,)}
