"""Writes in place where no gradients flow, which change by what ways gradients flow elsewhere.

    with torch.no_grad():             y has the new values, and the gradients that it had before
        y.mul_(2)
    z = y.detach(); z.add_(w)         z has gradients by w, and y those that it had before

PyTorch tells this from which tensor was written by which name. In a graph without writes there are
values alone, so that such writes are refused where gradients depend on them.
"""

from __future__ import annotations

import operator
from itertools import zip_longest

import torch
from torch import fx

from sambac.errors import CompileError

DETACH = torch.ops.aten.detach.default
GRADIENTS = "computed_with_gradients"
"""What notes on a node that gradients are on or off where it runs; on, if it is missing."""


def has_gradients(node: fx.Node) -> bool:
    """Tell whether `node` runs with gradients on."""
    return bool(node.meta.get(GRADIENTS, True))


def written_by(node: fx.Node) -> list[fx.Node]:
    """Return the inputs that `node` changes."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return []
    given = zip_longest(schema.arguments, node.args)
    return [
        value
        for item, value in ((item, node.kwargs.get(item.name, value)) for item, value in given)
        if isinstance(value, fx.Node) and item.alias_info is not None and item.alias_info.is_write
    ]


def active_nodes(graph: fx.Graph, sources: set[str], until: fx.Node | None = None) -> set[fx.Node]:
    """Return what depends on one of the inputs `sources` by operators that have gradients.

    Those before `until` count, if it is given.
    """
    active: set[fx.Node] = set()
    for node in graph.nodes:
        if node is until:
            break
        if node.op == "placeholder":
            if node.name in sources:
                active.add(node)
        elif _passes_gradients(node) and not active.isdisjoint(node.all_input_nodes):
            active.update((node, *(_base(target)[0] for target in written_by(node))))
    return active


def written_with_gradients(graph: fx.Graph) -> set[fx.Node]:
    """Return what operators that have gradients write, or write views of."""
    writers = filter(has_gradients, graph.nodes)
    return {_base(target)[0] for node in writers for target in written_by(node)}


def require_plain_writes(graph: fx.Graph, active: set[fx.Node]) -> None:
    """Raise `CompileError` for writes after which a graph cannot tell what has gradients by what.

    `active` are the nodes that have some. Parameters that are written are refused elsewhere.
    """
    for node in graph.nodes:
        for target in written_by(node):
            base, stopped = _base(target)
            values = has_gradients(node) and not active.isdisjoint(node.all_input_nodes)
            flows = values or (base in active and base.op != "placeholder")
            if flows and (stopped or not has_gradients(node)):
                raise CompileError(
                    f"the module changes a tensor in place ({node.target}) where gradients are off "
                    "(no_grad, detach), and gradients flow through that tensor; compute a new "
                    "tensor instead, or change a clone()"
                )


def _passes_gradients(node: fx.Node) -> bool:
    return node.target is not DETACH and has_gradients(node)


def _base(node: fx.Node) -> tuple[fx.Node, bool]:
    """Return what `node` is a view of, itself if of nothing, and whether gradients stop between."""
    stopped = False
    while (source := _viewed(node)) is not None:
        stopped = stopped or not _passes_gradients(node)
        node = source
    return node, stopped


def _viewed(node: fx.Node) -> fx.Node | None:
    """Return the tensor whose memory the result of `node` has, if there is one."""
    schema = getattr(node.target, "_schema", None)
    returns = schema.returns if schema is not None else ()
    shares = any(item.alias_info is not None for item in returns[:1])
    return node.all_input_nodes[0] if shares or node.target is operator.getitem else None
