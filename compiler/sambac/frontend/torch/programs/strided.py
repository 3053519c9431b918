"""Views of memory with strides of one's own, where ONNX has elements and no memory.

    as_strided(x, size, stride, at)  ->  as_strided(permute(x, order), size, stride, at - begin)

The exporter counts the elements of x in their order, which is that of memory where x has no gaps.
`order` makes it so of what was transposed, and x lies at `begin` in the memory that it is a view
of. What writes to such views, as `fill_diagonal_` does, is counted likewise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.fx.experimental.symbolic_shapes import has_free_symbols

from sambac.errors import CompileError
from sambac.graph.origins import last_line

_aten = torch.ops.aten
_READ, _WRITTEN = _aten.as_strided.default, _aten.as_strided_scatter.default
_SIZES_AT: Mapping[object, int] = {_READ: 1, _WRITTEN: 2}
"""Where each has the sizes; strides and the begin follow."""


def in_order_of_memory(program: ExportedProgram) -> None:
    """Let such views in `program`, which is functional, be of elements in their order, in place.

    Raises `CompileError` for those of tensors with gaps, or that reach beyond the tensor.
    """
    for part in program.graph_module.modules():
        if not isinstance(part, fx.GraphModule):
            continue
        found = [node for node in part.graph.nodes if node.target in _SIZES_AT]
        for node in found:
            _count_elements(part.graph, node)
        if found:
            part.recompile()


def _count_elements(graph: fx.Graph, node: fx.Node) -> None:
    operand = node.all_input_nodes[0]
    x, at = operand.meta["val"], _SIZES_AT[node.target]
    order = _order(x)
    if order is None:
        raise _refusal(node, "is of a tensor whose elements do not lie one after the other")
    size, stride, given = cast("tuple[Any, Any, Any]", (*node.args, None)[at : at + 3])
    given = node.kwargs.get("storage_offset", given)
    begin = 0 if given is None else given - x.storage_offset()
    if not has_free_symbols((x, size, stride, begin)):
        steps = [(count - 1) * step for count, step in zip(size, stride, strict=True)]
        if 0 not in size and not 0 <= begin <= begin + sum(steps) < x.numel():
            raise _refusal(node, "reaches beyond the tensor that it is called on")
    node.kwargs = {}
    node.args = (*node.args[:at], size, stride, begin)
    if order != list(range(x.dim())):
        _permute(graph, node, operand, order)


def _order(x: torch.Tensor) -> list[int] | None:
    """Return the axes of `x` as they lie in memory; None if it has gaps or repeats elements."""
    if x.is_contiguous():
        return list(range(x.dim()))
    if has_free_symbols(x):
        return None
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    return order if x.permute(order).is_contiguous() else None


def _permute(graph: fx.Graph, node: fx.Node, operand: fx.Node, order: list[int]) -> None:
    """Let `node` be of `operand` with its axes in `order`, and what it writes be turned back."""
    with graph.inserting_before(node):
        turned = _called(graph, operand, order)
    node.update_arg(0, turned)
    if node.target is _WRITTEN:
        back = [order.index(axis) for axis in range(len(order))]
        node.meta = {**node.meta, "val": turned.meta["val"].clone()}
        with graph.inserting_after(node):
            result = _called(graph, node, back)
        node.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)


def _called(graph: fx.Graph, operand: fx.Node, order: list[int]) -> fx.Node:
    made = graph.call_function(_aten.permute.default, (operand, order))
    made.meta = {**operand.meta, "val": operand.meta["val"].permute(order)}
    return made


def _refusal(node: fx.Node, what: str) -> CompileError:
    place = last_line(node.meta.get("stack_trace") or "")
    return CompileError(
        f"as_strided{f' at {place}' if place else ''} {what}; ONNX has no memory behind a "
        "tensor: index it, or call as_strided on contiguous() of the whole tensor"
    )
