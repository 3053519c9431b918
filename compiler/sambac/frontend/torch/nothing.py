"""Operators whose operand and whose result have no elements: the result is the operand.

    interpolate(x, [8, 8])  ->  reshape(x, [0, 3, 8, 8])       x [0, 3, 4, 4]

ONNX has no shape for some of them, and kernels refuse what has no elements.
"""

from __future__ import annotations

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import has_free_symbols

_RESHAPE = torch.ops.aten.reshape.default


def pass_nothing_on(program: ExportedProgram) -> None:
    """Let no operator of `program`, which is functional, make nothing of nothing, in place."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if _makes_nothing(node)]
        for node in found:
            shape = list(node.meta["val"].shape)
            node.target, node.args, node.kwargs = _RESHAPE, (node.all_input_nodes[0], shape), {}
        if found:
            part.recompile()


def _makes_nothing(node: fx.Node) -> bool:
    """Tell whether `node` has one operand, and neither that nor the result has an element."""
    if not isinstance(node.target, torch._ops.OpOverload) or len(node.all_input_nodes) != 1:
        return False
    result, operand = (_type_of_nothing(item) for item in (node, node.all_input_nodes[0]))
    return result is not None and result == operand


def _type_of_nothing(node: fx.Node) -> torch.dtype | None:
    """Return the type of the result of `node`, if that has known sizes and no elements."""
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor) or has_free_symbols(value):
        return None
    return value.dtype if value.numel() == 0 else None
