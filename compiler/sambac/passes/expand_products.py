"""Operators with products of matrices inside, written as the products where these matter.

    y = Attention(q, k, v)  ->  y = MatMul(Softmax(MatMul(q, Transpose(k)) * scale), v)

for rules that want fidelities, accumulators or blocks of an operator that one kernel computes. What
it is made of remembers it, so that a rule of that operator is one of its parts.
"""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.function_bodies import body_of, call_body
from sambac.graph.nodes import all_nodes
from sambac.ops.family import qualified

from .infer_shapes import InferShapes
from .inline_functions import InlineFunctions
from .lift_constants import LiftConstants
from .sort_nodes import SortNodes
from .unique_names import UniqueNames
from .wanted_numbers import FACTORS, PRODUCTS, MatchedRules, note_parts

_CLEAN_UP = (InlineFunctions(), UniqueNames(), SortNodes(), LiftConstants(), InferShapes())


def expand_products(model: ir.Model, matched: MatchedRules) -> None:
    """Expand in `model` what has a body, subgraphs included."""
    count = 0
    for node in all_nodes(model.graph):
        name = qualified(node.domain, node.op_type)
        if name not in FACTORS or name in PRODUCTS or not _matters(node, matched):
            continue
        body = body_of(node, model.opset_imports)
        if body is not None:
            note_parts(node, body)
            call_body(model, node, body, count)
            count += 1
    for step in _CLEAN_UP if count else ():
        step(model)


def _matters(node: ir.Node, matched: MatchedRules) -> bool:
    return any(matched.of(node, stage).inside(len(node.inputs)) for stage in ("fwd", "bwd"))
