"""Operators whose operands have several types, of which ONNX has none.

    layer_norm(x, w, b)  ->  cast(layer_norm(cast(x), w, b))     x in bfloat16, w and b in float32
    clamp(x, 0, 0.5)     ->  clamp(x, 0.0, 0.5)
    1.5 - x              ->  1.5 - cast(x)                       x of whole numbers

Under `torch.autocast` normalisations are such. PyTorch computes them in the wider type and rounds
the result once.
"""

from __future__ import annotations

from functools import reduce

import torch
from torch import fx
from torch.export import ExportedProgram

_aten = torch.ops.aten
_NORMALIZATIONS = frozenset(
    {
        _aten.group_norm.default,
        _aten.instance_norm.default,
        _aten.layer_norm.default,
        _aten.rms_norm.default,
    }
)

_CLAMPS = frozenset({_aten.clamp.default, _aten.clip.default})
_WITH_NUMBERS = frozenset({_aten.floor_divide.default, _aten.pow.Tensor_Scalar, _aten.rsub.Scalar})
"""What computes in the type of its result, where a number beside a tensor is of a wider one."""


def give_one_type(program: ExportedProgram) -> None:
    """Let operators of `program` that have operands of several types have one, in place."""
    changed = False
    for node in tuple(program.graph.nodes):
        if node.target in _CLAMPS:
            changed |= _give_one_kind(node)
        elif node.target in _WITH_NUMBERS:
            changed |= _widen_tensors(program.graph, node, _type(node))
        if node.target in _NORMALIZATIONS:
            changed |= _give_one_type(program.graph, node)
    if changed:
        program.graph_module.recompile()


def _give_one_type(graph: fx.Graph, node: fx.Node) -> bool:
    """Do so for `node`; return whether it had operands of several types."""
    types = {_type(operand) for operand in node.all_input_nodes}
    if len(types) == 1:
        return False
    wide = reduce(torch.promote_types, types)
    wanted = _type(node)
    _widen_tensors(graph, node, wide)
    if wanted is not wide:
        with graph.inserting_after(node):
            result = _cast(graph, node, wanted)
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
        node.meta = {**node.meta, "val": node.meta["val"].to(wide)}
    return True


def _give_one_kind(clamp: fx.Node) -> bool:
    """Let both limits of `clamp` be float where one is; return whether they differed."""
    low, high = (*clamp.args, None, None)[1:3]
    given = {"min": low, "max": high, **clamp.kwargs}
    limits = {name: limit for name, limit in given.items() if isinstance(limit, (int, float))}
    if {type(limit) for limit in limits.values()} != {int, float}:
        return False
    clamp.args, clamp.kwargs = clamp.args[:1], {name: float(n) for name, n in limits.items()}
    return True


def _widen_tensors(graph: fx.Graph, node: fx.Node, wide: torch.dtype) -> bool:
    """Let all tensors that `node` reads have the type `wide`; return whether any had not."""
    narrow = [operand for operand in node.all_input_nodes if _type(operand) is not wide]
    for operand in narrow:
        with graph.inserting_before(node):
            node.replace_input_with(operand, _cast(graph, operand, wide))
    return bool(narrow)


def _type(node: fx.Node) -> torch.dtype:
    dtype: torch.dtype = node.meta["val"].dtype
    return dtype


def _cast(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    cast = graph.call_function(_aten._to_copy.default, (node,), {"dtype": dtype})
    cast.meta = {**node.meta, "val": node.meta["val"].to(dtype)}
    return cast
