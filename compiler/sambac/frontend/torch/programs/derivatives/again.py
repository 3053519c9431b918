"""Operators of a recording run once more, as PyTorch differentiates them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from torch import Tensor, fx
from torch._ops import HigherOrderOperator
from torch.autograd.function import Function

from sambac.errors import CompileError
from sambac.frontend.torch.own_operators import OWN

from .formulas import FORWARD

Known = dict[fx.Node, Any]
"""The values of nodes."""


def arguments(node: fx.Node) -> Any:
    """Return what a node is given, whose operator knows the types."""
    return node.args


def differentiated(node: fx.Node) -> Sequence[fx.Node]:
    """Return what gradients of a node go to: not to what an own backward method leaves out."""
    if node.target is not OWN:
        return node.all_input_nodes
    _, _, sources, _ = arguments(node)
    return list(sources)


def require_plain(nodes: Sequence[fx.Node]) -> None:
    """Raise `CompileError` for control flow among `nodes`, which cannot be run again."""
    for node in nodes:
        if isinstance(node.target, HigherOrderOperator):
            raise CompileError(
                f"forward takes the derivative of {node.target}, which cannot be recorded; "
                "write it without control flow, torch.where for torch.cond"
            )


def run_again(nodes: Sequence[fx.Node], known: Known) -> None:
    """Add the values of `nodes` to `known`, which has those of all that they read.

    Raises `CompileError` for what has no derivative that could be differentiated in its turn.
    """
    for node in nodes:
        args, kwargs = fx.map_arg((node.args, node.kwargs), known.__getitem__)
        if node.target is OWN:
            known[node] = _own(node, known)
        else:
            assert callable(node.target)
            known[node] = FORWARD.get(node.target, node.target)(*args, **kwargs)
        _require_derivatives(node, known)


def _require_derivatives(node: fx.Node, known: Known) -> None:
    """Raise `CompileError` for a result beside others that PyTorch takes for a constant.

    Such is the mean beside what is normalized by it. A derivative that reads it would be wrong.
    """
    if node.target is not operator.getitem:
        return
    (source,) = node.all_input_nodes
    if source.target in FORWARD:
        return
    found = known[node]
    is_constant = found.is_floating_point() and not found.requires_grad
    if is_constant and any(one.requires_grad for one in known[source] if one is not None):
        raise CompileError(
            f"forward takes the derivative of something that {source.target} has computed, and "
            "that PyTorch does not differentiate; write it with other operators"
        )


class _Own(Function):
    """Results whose gradients are those that a method of the user's gives."""

    @staticmethod
    def forward(ctx: Any, backward: Any, count: int, *given: Tensor) -> tuple[Tensor, ...]:
        """Return the first `count` of what is `given`; the others get the gradients."""
        ctx.own, ctx.count = backward, count
        return tuple(one.clone() for one in given[:count])

    @staticmethod
    def backward(ctx: Any, *incoming: Tensor) -> tuple[Tensor | None, ...]:
        """Return gradients of the others."""
        return (None, None, *[None] * ctx.count, *ctx.own(incoming))


def own_results(node: fx.Node) -> list[fx.Node]:
    """Return the results of a function with a backward method of its own, in their order."""
    items = {arguments(item)[1]: item for item in node.users}
    for at, value in enumerate(node.meta["val"]):
        if at not in items:
            with node.graph.inserting_after(node):
                items[at] = node.graph.call_function(operator.getitem, (node, at))
            items[at].meta = {**node.meta, "val": value}
    return [items[at] for at in range(len(items))]


def _own(node: fx.Node, known: Known) -> list[Tensor]:
    """Return the results of a function with a backward method of its own, which are `known`.

    What was recorded of this method is run for the gradients that come. The results that it reads
    are those with gradients of its own.
    """
    results, incoming, sources, gradients = arguments(node)
    ends = [known[item].detach() for item in own_results(node)]

    def backward(came: Sequence[Tensor]) -> list[Tensor]:
        inner = {**known, **dict(zip((*results, *incoming), (*ends, *came), strict=True))}
        run_again(_depending(incoming, node), inner)
        return [inner[one] for one in gradients]

    given: Any = (backward, len(ends), *ends, *(known[one] for one in sources))
    return [*_Own.apply(*given)]  # type: ignore[no-untyped-call]


def run_backward(node: fx.Node) -> set[fx.Node]:
    """Return what is run for the gradients of a function with a backward method of its own.

    Such a method may call other functions that have one.
    """
    found = set(_depending(arguments(node)[1], node))
    inner = [one for one in found if one.target is OWN]
    return found.union(*map(run_backward, inner))


def _depending(sources: Sequence[fx.Node], until: fx.Node) -> list[fx.Node]:
    """Return the nodes before `until` that depend on `sources`, in their order."""
    depend, found = set(sources), []
    for node in until.graph.nodes:
        if node is until:
            break
        if node not in depend and not depend.isdisjoint(node.all_input_nodes):
            depend.add(node)
            found.append(node)
    return found
