"""A choice of two computations as one operator: an If, its branches written like graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import onnx_ir as ir

from .editor import Editor, shape_of

Branch: TypeAlias = Callable[[Editor], ir.Value]


def choose(b: Editor, condition: ir.Value, then: Branch, otherwise: Branch) -> ir.Value:
    """Append an If; return what `then` makes where `condition` [] holds, else `otherwise`.

    Both get an editor that appends to their branch, and return values of one type and shape. They
    have to be results of operators of the branch, which may read values of the main graph.
    """
    branches = []
    for name, branch in (("then", then), ("otherwise", otherwise)):
        graph = ir.Graph(
            [], [], nodes=[], opset_imports=b.model.opset_imports, name=f"{b.scope}{name}"
        )
        graph.outputs.append(branch(b.inside(graph)))
        branches.append(graph)
    made = branches[0].outputs[0]
    result = b.fresh("chosen", made.dtype, shape_of(made))
    graphs = {"then_branch": branches[0], "else_branch": branches[1]}
    b.put(ir.node("If", [condition], graphs, outputs=[result]))
    return result
