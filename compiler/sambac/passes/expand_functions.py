"""Expand operators that have no kernel into the body that the ONNX standard gives for them.

y = Mish(x)  ->  y = x * Tanh(Softplus(x))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.graph.function_bodies import body_of, call_body
from sambac.graph.nodes import all_nodes
from sambac.kernels.registry import why_not_runnable
from sambac.ops import gradient_of

from .base import WITHOUT_KERNEL, Pass
from .infer_shapes import InferShapes
from .inline_functions import InlineFunctions
from .insert_casts import wider_call
from .lift_constants import LiftConstants
from .sort_nodes import SortNodes
from .unique_names import UniqueNames

_MAX_ROUNDS = 8
_CLEAN_UP = (InlineFunctions(), UniqueNames(), SortNodes(), LiftConstants(), InferShapes())


@dataclass(frozen=True)
class ExpandFunctions(Pass):
    """Replace nodes without a kernel by their function bodies, again and again.

    A node that would run on a wider type is left alone, and so is one without a body. With
    `keep_differentiable` those with a gradient rule are, too: it beats the gradient of the body.
    Types must be known; they and the shapes are inferred anew where something was expanded.
    """

    name: ClassVar[str] = "expand_functions"
    operators: ClassVar[frozenset[str] | None] = frozenset({WITHOUT_KERNEL})
    keep_differentiable: bool = False

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Expand in `model`, subgraphs included."""
        rounds = 0
        while rounds < _MAX_ROUNDS and _expand_all(model, self._wants):
            for step in _CLEAN_UP:
                step(model)
            rounds += 1
        return ir.passes.PassResult(model, modified=rounds > 0)

    def _wants(self, node: ir.Node, model: ir.Model) -> bool:
        if self.keep_differentiable and gradient_of(node) is not None:
            return False
        return _needs_body(node, model)


def _expand_all(model: ir.Model, wanted: Callable[[ir.Node, ir.Model], bool]) -> bool:
    """Turn every node that is `wanted` into a call of a function with its body."""
    count = 0
    for node in all_nodes(model.graph):
        body = body_of(node, model.opset_imports) if wanted(node, model) else None
        if body is not None:
            call_body(model, node, body, count)
            count += 1
    return count > 0


def _needs_body(node: ir.Node, model: ir.Model) -> bool:
    opsets = model.opset_imports
    return why_not_runnable(node, opsets) is not None and wider_call(node, opsets) is None
