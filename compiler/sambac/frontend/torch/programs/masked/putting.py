"""Operators that are put into graphs of PyTorch, with what is known of their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from sambac.frontend.torch.programs.writes import noted

Put = Callable[..., fx.Node]
"""Puts an operator somewhere in a graph, with its operands."""


def putter(graph: fx.Graph, before: fx.Node) -> Put:
    """Return what puts an operator in front of a node, of which it has the place."""

    def put(target: Callable[..., object], *args: Any, **kwargs: Any) -> fx.Node:
        with graph.inserting_before(before):
            node = graph.call_function(target, args, kwargs)
        given, named = fx.map_arg((args, kwargs), lambda item: item.meta["val"])
        node.meta = noted(before, val=target(*given, **named))
        return node

    return put
