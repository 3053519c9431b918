"""Operators along an axis of a number, which PyTorch takes for a tensor of one element.

    max(x, 0)  ->  reshape(max(reshape(x, [1]), 0), [])       x has no axes

In ONNX a number has no axis 0. The exporter translates most of these operators as if it had one.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

import torch
from torch import fx
from torch.export import ExportedProgram

_AXES = frozenset({"dim", "dims"})
"""What PyTorch calls the arguments that name axes."""


def give_axes(program: ExportedProgram) -> None:
    """Let no operator of `program`, which is functional, name an axis of a number, in place."""
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if _is_along_number(node)]
        for node in found:
            _give_axis(part.graph, node)
        if found:
            part.recompile()


def _is_along_number(node: fx.Node) -> bool:
    """Tell whether `node` computes along an axis of a tensor that has none; views stay."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not (node.args and _is_number(node.args[0])):
        return False
    given = {item.name: item.default_value for item in schema.arguments}
    given.update(zip(given, node.args, strict=False))
    given.update(node.kwargs)
    named = any(given[name] not in (None, []) for name in _AXES & given.keys())
    return named and all(item.alias_info is None for item in schema.returns)


def _is_number(value: object) -> bool:
    """Tell whether `value` is a node whose result is a tensor without axes."""
    result = value.meta.get("val") if isinstance(value, fx.Node) else None
    return isinstance(result, torch.Tensor) and result.dim() == 0


def _give_axis(graph: fx.Graph, node: fx.Node) -> None:
    """Give the numbers among the operands of `node` an axis; its results keep their shapes."""
    with graph.inserting_before(node):
        for operand in filter(_is_number, node.all_input_nodes):
            node.replace_input_with(operand, _reshaped(graph, operand, (1,)))
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda operand: operand.meta["val"])
    made = node.target(*args, **kwargs)  # type: ignore[operator]  # an operator, as it has a schema
    for result, value in list(_results(node, made)):
        shape = result.meta["val"].shape
        result.meta = {**result.meta, "val": value}
        if value.shape != shape:
            readers = list(result.users)
            with graph.inserting_after(result):
                kept = _reshaped(graph, result, tuple(shape))
            for reader in readers:
                reader.replace_input_with(result, kept)
    node.meta = {**node.meta, "val": made}


def _results(
    node: fx.Node, made: torch.Tensor | tuple[torch.Tensor, ...]
) -> Iterator[tuple[fx.Node, torch.Tensor]]:
    """Yield the nodes that are results of `node`, with those of `made` that belong to them."""
    if isinstance(made, torch.Tensor):
        yield node, made
        return
    for user in node.users:
        assert user.target is operator.getitem
        index = user.args[1]
        assert isinstance(index, int)
        yield user, made[index]


def _reshaped(graph: fx.Graph, node: fx.Node, shape: tuple[int, ...]) -> fx.Node:
    result = graph.call_function(torch.ops.aten.reshape.default, (node, list(shape)))
    result.meta = {**node.meta, "val": node.meta["val"].reshape(shape)}
    return result
