"""Fresh names for what passes add to a model."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import onnx_ir as ir

from sambac.graph.nodes import all_graphs, all_nodes


class FreshNames:
    """Hands out names that are not taken, each derived from a wanted one; linear in all calls."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def __call__(self, wanted: str) -> str:
        """Return `wanted`, or `wanted_1`, `wanted_2` and so on, and take it."""
        name = wanted
        number = self._next.get(wanted, 1)
        while name in self._taken:
            name = f"{wanted}_{number}"
            number += 1
        self._next[wanted] = number
        self._taken.add(name)
        return name


def value_names(model: ir.Model) -> FreshNames:
    """Return fresh names beside those of all values of `model`, its subgraphs included."""
    taken: set[str] = set()
    for graph in all_graphs(model.graph):
        taken.update(str(value.name) for value in graph.inputs)
        taken.update(graph.initializers)
        taken.update(str(value.name) for node in graph for value in node.outputs)
    return FreshNames(taken)


def make_way(model: ir.Model, names: Iterable[str]) -> None:
    """Rename results inside `model` that bear one of `names`, which are to be public."""
    fresh = value_names(model)
    wanted = frozenset(names)
    for name in sorted(wanted):
        fresh(name)
    for node in all_nodes(model.graph):
        for value in node.outputs:
            if value.name in wanted and not value.is_graph_output():
                value.name = fresh(str(value.name))


def inner_result(model: ir.Model, name: str) -> ir.Value | None:
    """Return the result called `name` of a node of `model`, unless it is an output of a graph."""
    for node in all_nodes(model.graph):
        for value in node.outputs:
            if value.name == name:
                return None if value.is_graph_output() else value
    return None


def node_names(model: ir.Model) -> FreshNames:
    """Return fresh names beside those of all nodes of `model`, its subgraphs included."""
    return FreshNames(str(node.name) for node in all_nodes(model.graph))


class ModelNames:
    """Names that are new to `model`; it is asked for those it has when the first is wanted."""

    def __init__(self, model: ir.Model) -> None:
        self._model = model

    @cached_property
    def value(self) -> FreshNames:
        """Those of values."""
        return value_names(self._model)

    @cached_property
    def node(self) -> FreshNames:
        """Those of nodes."""
        return node_names(self._model)
