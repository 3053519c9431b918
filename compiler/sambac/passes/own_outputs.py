"""Outputs of graphs that need an operator to make them.

    graph { .. ; return p, p }       ->  graph { .. ; q = Identity(p); return p, q }
    graph { .. ; return outer }      ->  graph { .. ; q = Identity(outer); return q }
    Scan(body(x) { .. ; return x })  ->  Scan(body(x) { .. ; q = Identity(x); return q })
    model { .. ; return "text" }     ->  model { .. ; q = Identity("text"); return q }

Where a subgraph returns a value twice, onnxruntime fills only one of the two results, and none
that is an input of a Scan's body. Strings have a place in the file only inside of programs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import onnx_ir as ir

from sambac.graph.editor import Editor
from sambac.graph.nodes import all_nodes, own_values, subgraphs

from .base import CONSTANT_OUTPUTS, SUBGRAPHS, Pass

# Values to copy, each with the positions among the outputs of its graph that the copy takes.
_Copies: TypeAlias = list[tuple[ir.Value, list[int]]]


@dataclass(frozen=True)
class OwnOutputs(Pass):
    """Let an operator make each output of a subgraph, and each constant string of the model.

    In a subgraph, constants and inputs, but for those of a Scan, may stay outputs, once. Outputs of
    the model keep their names.
    """

    name: ClassVar[str] = "own_outputs"
    operators: ClassVar[frozenset[str] | None] = frozenset({SUBGRAPHS, CONSTANT_OUTPUTS})

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Insert an Identity wherever one is needed in `model`, whose names must be unique."""
        main = model.graph
        found = [(main, _texts(main))]
        for node in all_nodes(main):
            found += [(graph, _not_own(node, graph)) for graph in subgraphs(node)]
        needed = [(graph, value, at) for graph, copies in found for value, at in copies]
        if needed:
            editor = Editor(model)
            for graph, value, positions in needed:
                copy = _copy(editor, graph, value)
                for position in positions:
                    graph.outputs[position] = copy
        return ir.passes.PassResult(model, modified=bool(needed))


def _texts(graph: ir.Graph) -> _Copies:
    """Return the outputs that are constant strings, each with its positions."""
    found: dict[ir.Value, list[int]] = {}
    for position, value in enumerate(graph.outputs):
        if value.is_initializer() and value.dtype == ir.DataType.STRING:
            found.setdefault(value, []).append(position)
    return list(found.items())


def _not_own(node: ir.Node, graph: ir.Graph) -> _Copies:
    """Return the outputs that an earlier output is too, or that the subgraph does not make."""
    own = set(own_values(graph))
    if node.domain == "" and node.op_type == "Scan":
        own.difference_update(graph.inputs)
    found: _Copies = []
    for position, value in enumerate(graph.outputs):
        if value not in own:
            found.append((value, [position]))
        own.discard(value)
    return found


def _copy(editor: Editor, graph: ir.Graph, value: ir.Value) -> ir.Value:
    """Return a copy of `value` made at the end of `graph`; that of the model gets its name."""
    editor.go_to_end(graph)
    copy = editor.op("Identity", value, like=value, name=f"{value.name}_copy")
    if graph is editor.model.graph:
        value.name, copy.name = copy.name, value.name
    return copy
