"""Names and order: what a model needs before anything else can be asked of it.

Every node and every value has a name of its own, and each value is made before it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import onnx_ir as ir

from sambac.errors import CompileError
from sambac.graph.names import FreshNames
from sambac.graph.nodes import all_graphs, all_nodes, first_unmade, own_values
from sambac.passes.base import OUT_OF_ORDER, Pass


@dataclass(frozen=True)
class UniqueNames(Pass):
    """Rename what has no name or shares one, so that a name means one thing in the whole model.

    Subgraphs count: a value that shadows one of an enclosing graph gets another name. The names
    of the model's inputs and outputs stay, then those of its initializers; the rest keep theirs
    in the order of the graph. An output that is absent by an empty name stays absent, but for those
    of an operator that has any number of them: its kernel makes all, and ends the process over one
    that has no place.
    """

    name: ClassVar[str] = "unique_names"

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rename in `model`."""
        modified = _name_nodes(model)
        modified |= _name_values(model)
        return ir.passes.PassResult(model, modified=modified)


def _name_nodes(model: ir.Model) -> bool:
    fresh = FreshNames()
    modified = False
    for node in all_nodes(model.graph):
        name = fresh(node.name or node.op_type)
        if name != node.name:
            node.name = name
            modified = True
    return modified


def _name_values(model: ir.Model) -> bool:
    seen: set[ir.Value] = set()
    fresh = FreshNames()
    modified = False
    for value in _values(model):
        if value in seen or _is_absent(value):
            continue
        seen.add(value)
        name = fresh(value.name or "value")
        if name != value.name:
            value.name = name
            modified = True
    return modified


def _values(model: ir.Model) -> Iterator[ir.Value]:
    """Yield all values, some more than once, those first whose names matter most."""
    yield from model.graph.inputs
    yield from model.graph.outputs
    for graph in all_graphs(model.graph):
        # Renaming an initializer moves it in its graph's table, hence the copy.
        yield from list(own_values(graph))


_OF_ANY_NUMBER = frozenset({"If", "Loop", "Scan", "SequenceMap", "Split"})


def _is_absent(value: ir.Value) -> bool:
    maker = value.producer()
    if maker is not None and maker.domain == "" and maker.op_type in _OF_ANY_NUMBER:
        return False
    return value.name == "" and not value.uses() and not value.is_graph_output()


@dataclass(frozen=True)
class SortNodes(Pass):
    """Sort topologically, subgraphs included; a model that is in order stays as it is.

    Raises `CompileError` for a cycle, and for a value that is read but never made.
    """

    name: ClassVar[str] = "sort_nodes"
    operators: ClassVar[frozenset[str] | None] = frozenset({OUT_OF_ORDER})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Sort the nodes of `model`."""
        if first_unmade(model.graph) is None:
            return ir.passes.PassResult(model, modified=False)
        try:
            model.graph.sort()
        except ValueError as error:
            raise CompileError(
                "the model's operators form a cycle, so none of them can run first; "
                "export the model again"
            ) from error
        unmade = first_unmade(model.graph)
        if unmade is not None:
            raise CompileError(
                f"{unmade} is read, but nothing in the model makes it; export the model again"
            )
        return ir.passes.PassResult(model, modified=True)
